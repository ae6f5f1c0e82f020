"""torch's streams and events on the emulator: what they put into order, and what they do not."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

from kernelbench import ptx
from kernelbench.ptx.hosts.cuda_on_cpu import LiveTensors, cuda_on_cpu

#: y = x + 1, by one thread; `{wait}` is where a dependent launch may wait.
TEXT = """
.version 8.6
.target sm_90
.address_size 64
.visible .entry {name}(.param .u64 y, .param .u64 x)
{{
  .reg .b64 %rd<3>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [y];
  ld.param.u64 %rd2, [x];
  {wait}
  ld.global.u32 %r1, [%rd2];
  add.u32 %r1, %r1, 1;
  st.global.u32 [%rd1], %r1;
  ret;
}}
"""
NOTHING = "nothing orders the two"


class Script(NamedTuple):
    """What a script has: its tensors, and its kernel's launches."""

    live: LiveTensors
    plain: ptx.PtxModule
    waits: ptx.PtxModule
    found: list[str]

    def next_of(self, y: torch.Tensor, x: torch.Tensor, *, ahead: bool = False, waits=True) -> None:
        module = self.waits if ahead and waits else self.plain
        with self.live.order.operation("launch", "next", programmatic=ahead):
            (kernel,) = module.kernels
            report = module.launch(
                kernel, 1, 1, [y.data_ptr(), x.data_ptr()], check=2,
                memory=self.live.storages({"y": y, "x": x}),
            )  # fmt: skip
        self.found.extend(each.finding.text for each in report.errors)


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    return [
        ptx.load("next.ptx", text=TEXT.format(name="next", wait=wait))
        for wait in ("", "griddepcontrol.wait;")
    ]


@pytest.fixture
def script(modules):
    with cuda_on_cpu(90, 4) as live, live.order.checked():
        yield Script(live, *modules, [])


def ints(*values):
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def test_one_stream_is_in_order(script):
    x, y, z = ints(1), ints(0), ints(0)
    script.next_of(y, x)
    y += 1
    script.next_of(z, y)
    assert not script.found and z.item() == 4


@pytest.mark.parametrize("how", ["wait_stream", "event", "record_event", "host", "stream", "item"])
def test_streams_that_wait(script, how):
    x, y, z = ints(1), ints(0), ints(0)
    torch.cuda.synchronize()
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(side):
        script.next_of(y, x)
        event.record()
        if how == "item":
            y.item()
    if how == "wait_stream":
        torch.cuda.current_stream().wait_stream(side)
    elif how == "event":
        event.wait()
    elif how == "record_event":
        torch.cuda.default_stream().wait_event(side.record_event())
    elif how == "host":
        torch.cuda.synchronize()
    elif how == "stream":
        side.synchronize()
    script.next_of(z, y)
    assert not script.found


def test_streams_that_do_not_wait(script):
    x, y, z = ints(1), ints(0), ints(0)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        script.next_of(y, x)
        torch.cuda.Event().record()
    script.next_of(z, y)
    assert script.found == [f"a load reads x that kernel next on stream 1 writes: {NOTHING}"]


def test_what_torch_writes_is_on_its_stream(script):
    x, y = ints(1), ints(0)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    x += 1
    with torch.cuda.stream(side):
        script.next_of(y, x)
    (found,) = script.found
    assert found.startswith("a load reads x that torch's add_ at test_torch_streams.py:")
    assert found.endswith(f" on the default stream writes: {NOTHING}")


def test_what_torch_reads_is_on_its_stream(script):
    x, y = ints(1), ints(0)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        script.next_of(y, x)
    y.add(1)
    (found,) = script.live.order.report()["findings"]
    assert found["text"].endswith(f"reads a tensor that kernel next on stream 1 writes: {NOTHING}")


def test_an_event_stands_for_what_was_there_when_it_was_recorded(script):
    x, y, z = ints(1), ints(0), ints(0)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    early = side.record_event()
    with side:
        script.next_of(y, x)
    early.wait()
    script.next_of(z, y)
    assert len(script.found) == 1


def test_a_new_tensor_has_no_past(script):
    x, z = ints(1), ints(0)
    memory = bytearray(4)  # as of an allocator that gives the same again

    def made() -> torch.Tensor:
        return torch.frombuffer(memory, dtype=torch.int32)

    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        script.next_of(made(), x)
    script.next_of(z, made())
    assert not script.found


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("between", [True, False])
def test_a_dependent_launch(script, waits, between):
    x, y, z = ints(1), ints(0), ints(0)
    script.next_of(y, x)
    if between:  # the launch then depends on torch's kernel
        y += 1
    script.next_of(z, y, ahead=True, waits=waits)
    assert len(script.found) == (not waits and not between)
    assert all("before griddepcontrol.wait" in each for each in script.found)


def test_without_a_check_nobody_is_told(modules):
    with cuda_on_cpu(90, 4) as live:
        script = Script(live, *modules, [])
        x, y, z = ints(1), ints(0), ints(0)
        with torch.cuda.stream(torch.cuda.Stream()):
            script.next_of(y, x)
        script.next_of(z, y)
        assert not script.found and z.item() == 3


def test_memory_that_nothing_has_written(script):
    x, y = ints(1), torch.empty(2, dtype=torch.int32, device="cuda")
    script.next_of(y, x)
    y[:1].add(1)
    assert not script.live.order.report()["notes"]
    y.add(1)
    (note,) = script.live.order.report()["notes"]
    assert note["text"].startswith("torch's add at test_torch_streams.py:")
    assert note["text"].endswith(" reads a tensor that nothing has written")
    y[1].fill_(2)
    z = torch.empty_like(x)
    y[::2].copy_(x)  # of such a part nobody keeps track
    y.add(z.zero_())
    assert len(script.live.order.report()["notes"]) == 1


def test_new_memory_may_hold_other_values(modules):
    with cuda_on_cpu(90, 4) as live, live.order.checked():
        live.order.new_bytes = 1
        assert torch.empty(3, dtype=torch.int16, device="cuda").tolist() == [0x101] * 3


def test_tensors_without_memory_of_their_own(script):
    with torch.cuda.stream(torch.cuda.Stream()):
        sparse = torch.eye(2, device="cuda").to_sparse()
        assert (sparse + sparse).to_dense().sum().item() == 4
        assert (torch.empty(2, device="meta") + 1).is_meta
        with torch._subclasses.FakeTensorMode():
            assert torch.empty(2).add(1).shape == (2,)


def test_streams_are_entered_within_each_other(script):
    default, side = torch.cuda.current_stream(), torch.cuda.Stream()
    with side, side:
        assert torch.cuda.current_stream() == side
    assert torch.cuda.current_stream() == default


def test_tensors_of_host_and_gpu_are_two(script):
    host = torch.arange(4)
    gpu = host.to(torch.device("cuda"))
    gpu += 1
    back = gpu.cpu()
    gpu += 1
    assert host.tolist() == [0, 1, 2, 3] and back.tolist() == [1, 2, 3, 4]
    layer = torch.nn.Linear(2, 2)
    (weight, _) = (each.detach() for each in layer.parameters())
    layer.to("cuda").weight.data.zero_()
    assert weight.any()
    torch.set_default_device("cuda")
    drawn = torch.randn(2, generator=torch.Generator("cuda").manual_seed(1))
    torch.set_default_device("cpu")
    assert script.live.order.place_of(drawn) and not script.live.order.place_of(host)


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("reads", [True, False])
def test_pinned_memory_is_the_hosts(script, waits, reads):
    gpu, pinned = ints(1, 2), torch.zeros(2, dtype=torch.int32).pin_memory()
    if reads:
        pinned.copy_(gpu, non_blocking=True)
    else:
        gpu.copy_(pinned, non_blocking=True)
    if waits:
        torch.cuda.synchronize()
    assert pinned.add(1).shape if reads else pinned.fill_(3).any()
    texts = [each["text"] for each in script.live.order.report()["findings"]]
    assert (len(texts) == 0) == waits
    assert waits or ("on the host " in texts[0] and texts[0].endswith(NOTHING))


@pytest.mark.parametrize("waits", [True, False])
def test_a_number_is_the_hosts(script, waits):
    gpu, staged = ints(1, 2), torch.zeros(2, dtype=torch.int32, pin_memory=True)
    gpu.copy_(staged, non_blocking=True)
    if waits:
        torch.cuda.synchronize()
    staged[1] = 3  # torch makes a tensor of it
    found = [each["text"] for each in script.live.order.report()["findings"]]
    assert len(found) == (not waits)
    assert waits or " on the host writes a tensor that torch's copy_ " in found[0]


def test_a_copy_between_tensors_of_the_gpu_is_waited_for_by_its_stream_alone(script):
    x, y, side = ints(1), ints(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        y.copy_(x)
    y.add(1)
    assert script.live.order.report()["findings"]


def test_a_stream_keeps_memory(script: Script) -> None:
    """torch's own function refuses streams that are not torch's."""
    torch.ones(4, device="cuda").record_stream(torch.cuda.Stream())
    assert not script.found


@pytest.mark.parametrize(
    ("orders", "found"),
    [
        ("nothing", True), ("record_stream", False), ("the host", False), ("the stream", False),
        ("another stream", True), ("a larger tensor", False), ("a tensor of the side's", False),
    ],
)  # fmt: skip
def test_memory_of_a_dropped_tensor_is_given_to_the_next(script: Script, orders, found) -> None:
    """PyTorch, Tensor.record_stream: a new tensor may get memory that another stream still reads.

    By the caching allocator, for tensors of the stream on which the first was made.
    """
    x, y, side = ints(*range(32)), ints(0), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        script.next_of(y, x)
    if orders == "record_stream":
        x.record_stream(side)
    if orders == "another stream":
        x.record_stream(torch.cuda.current_stream())
    del x
    if orders == "the host":
        side.synchronize()
    if orders == "the stream":
        torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.stream(side if orders == "a tensor of the side's" else None):
        size = 4096 if orders == "a larger tensor" else 8
        assert torch.ones(size, dtype=torch.int32, device="cuda").shape == (size,)
    texts = [each["text"] for each in script.live.order.report()["findings"]]
    assert len(texts) == found
    assert (
        not found or "dropped without record_stream that kernel next on stream 1 reads" in texts[0]
    )


def test_tensors_of_the_host_are_in_order_with_copies_on_any_stream(script: Script) -> None:
    """Pageable memory: the host goes on once it is copied, and has written it before."""
    side = torch.cuda.Stream()
    gpu = ints(0, 0)
    torch.cuda.synchronize()
    for turn in range(3):
        rows = torch.arange(2, dtype=torch.int32) + turn
        with torch.cuda.stream(side):
            gpu.copy_(rows)
    assert not script.live.order.report()["findings"]


@pytest.mark.parametrize("expects", [False, True])
def test_what_comes_before_the_first_stream_counts_if_one_is_expected(script, expects):
    script.live.order.opens_streams = expects
    x, y = ints(1) * 2, ints(0)
    with torch.cuda.stream(torch.cuda.Stream()):
        script.next_of(y, x)
    found = script.live.order.report()["findings"] or script.found
    assert bool(found) == expects
