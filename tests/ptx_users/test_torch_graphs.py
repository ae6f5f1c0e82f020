"""torch's CUDA graphs on the emulator: what a capture records, and in what order replays are."""

from __future__ import annotations

import pytest
import torch

from kernelbench.base.errors import UsageError
from kernelbench.ptx.hosts.cuda_on_cpu import LiveTensors, cuda_on_cpu


@pytest.fixture
def live():
    with cuda_on_cpu(90, 4) as live, live.order.checked():
        yield live


def found(live: LiveTensors) -> list[str]:
    return [each["text"] for each in live.order.report()["findings"]]


def ones() -> torch.Tensor:
    return torch.ones(4, device="cuda")


def test_a_capture_changes_nothing_and_a_replay_does(live):
    x, graph = ones(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        y = x * 2
        x += y
    assert not torch.cuda.is_current_stream_capturing()
    assert x.tolist() == [1] * 4 and bool(y.isnan().all())
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    assert x.tolist() == [9] * 4 and y.tolist() == [6] * 4
    x.fill_(2)
    graph.replay()
    assert y.tolist() == [4] * 4 and not found(live)


@pytest.mark.parametrize("waits", [True, False])
def test_a_replay_is_on_the_current_stream(live, waits):
    x, graph, side = ones(), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph):
        y = x + 1
    graph.replay()
    if waits:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y.add_(1)
    assert bool(found(live)) != waits


@pytest.mark.parametrize("joins", [True, False])
def test_branches_of_a_graph(live, joins):
    x, z, graph, side = ones(), ones(), torch.cuda.CUDAGraph(), torch.cuda.Stream()

    def forked() -> None:
        with torch.cuda.graph(graph):
            main = torch.cuda.current_stream()
            side.wait_stream(main)
            with torch.cuda.stream(side):
                z.add_(x)
            if joins:
                main.wait_stream(side)
            x.mul_(z)

    if joins:
        forked()
        graph.replay()
        assert x.tolist() == [2] * 4 and not found(live)
    else:
        with pytest.raises(RuntimeError, match="unjoined"):
            forked()


def test_what_follows_a_replay_waits_for_all_branches(live):
    x, z, graph, side = ones(), ones(), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            z.add_(x)
        x.clone()
        torch.cuda.current_stream().wait_stream(side)
    for _ in range(2):
        graph.replay()
        x.copy_(z)
    assert z.tolist() == [4] * 4 and not found(live)


def test_two_branches_that_nothing_orders(live):
    x, graph, side = ones(), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            x.add_(1)
        x.mul_(2)
        main.wait_stream(side)
    assert not found(live)
    graph.replay()
    assert found(live) and not any("torch's set_" in each for each in found(live))


@pytest.mark.parametrize("how", ["item", "tolist", "synchronize"])
def test_the_host_cannot_wait_in_a_capture(live, how):
    x = ones()
    ask = {"item": lambda: x[0].item(), "tolist": x.tolist, "synchronize": torch.cuda.synchronize}
    with (
        pytest.raises(RuntimeError, match="not permitted when stream is capturing"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        ask[how]()


def test_waiting_for_what_is_not_captured(live):
    x, side = ones(), torch.cuda.Stream()
    with torch.cuda.stream(side):
        x.add_(1)
    with (
        pytest.raises(RuntimeError, match="uncaptured work"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        torch.cuda.current_stream().wait_stream(side)


def test_a_tensor_that_is_gone(live):
    x, graph = ones(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x + 1
    graph.replay()
    assert y.tolist() == [2] * 4
    del x
    with pytest.raises(RuntimeError, match="tensor that is gone"):
        graph.replay()


def test_what_is_refused(live):
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        torch.cuda.CUDAGraph().replay()
    with pytest.raises(UsageError, match="make_graphed_callables"):
        torch.cuda.make_graphed_callables(None, ())


def test_without_a_check_there_are_none():
    with (
        cuda_on_cpu(90, 4),
        pytest.raises(UsageError, match="only where launches are checked"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        pass
