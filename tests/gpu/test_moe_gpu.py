"""MoE steps on a Hopper GPU: streams, graph replay, buffers that are kept between calls, any shape,
and operands that are not finite.

What ``kernelbench run`` checks of every step (late inputs, a busy device, each class of inputs) is
not repeated here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from moe_cases import (
    CAPTURED,
    OWN_WORKSPACE,
    ROOT,
    STEPS,
    Kernel,
    any_shape,
    call_and_judge,
    with_spoiled_tokens,
)
from test_native_parity import hopper, needs_nvcc

from kernelbench.executors import targets
from kernelbench.machine import devices
from kernelbench.problems.fused_moe.problem import PROBLEM
from kernelbench.problems.fused_moe.shape import MoeShape
from kernelbench.project.arena import bits
from kernelbench.project.problem import Inputs, refill
from kernelbench.project.project_file import find_project
from kernelbench.project.registry import load_lineages

pytestmark = [pytest.mark.gpu, hopper, needs_nvcc]

Get = Callable[[str], Kernel]
DEVICE = next((f"cuda:{gpu.index}" for gpu in devices.gpus() if gpu.capability == (9, 0)), "cpu")
#: Each element is the sum of two addends: the same bits in whatever order they come.
TWO = MoeShape("two", 48, 256, 640, 24, 2)
every_step = pytest.mark.parametrize("step", STEPS)
every_stream = pytest.mark.parametrize("own", [False, True], ids=["default", "own-stream"])


@pytest.fixture(scope="module")
def kernels() -> Get:
    """A step's callable on the GPU."""
    steps = load_lineages(find_project(ROOT))
    loaded: dict[str, Kernel] = {}

    def get(name: str) -> Kernel:
        if name not in loaded:
            step = steps.get(name)
            where = targets.resolve(step, "gpu", int(DEVICE.removeprefix("cuda:")))
            loaded[name] = where.executor.load(step, PROBLEM, where, 0.0)
        return loaded[name]

    return get


@pytest.fixture
def stream(own: bool) -> Iterator[None]:
    """The stream that is current in the test; the device is idle before and after."""
    torch.cuda.synchronize(DEVICE)
    where = torch.cuda.Stream(DEVICE) if own else torch.cuda.default_stream(DEVICE)
    with torch.cuda.stream(where):
        yield
    torch.cuda.synchronize(DEVICE)


def draw(shape: MoeShape, seed: int, input_class: str = "random") -> Inputs:
    return PROBLEM.make_inputs(shape, input_class, seed, DEVICE)


def expect_right(output: torch.Tensor, inputs: Inputs, shape: MoeShape) -> None:
    reference = PROBLEM.reference(inputs, shape, "random")
    result = PROBLEM.compare([output], reference, shape, "random")
    assert result.ok, f"{shape.describe()}: {result.reason}"


def poison(inputs: Inputs, seed: int) -> None:
    inputs.arena.fill(inputs.arena.draw_poison(seed))


@every_step
@pytest.mark.parametrize("seed", range(24))
def test_any_shape(kernels: Get, step: str, seed: int) -> None:
    shape, input_class = any_shape(seed), PROBLEM.input_classes[seed % 3]
    call_and_judge(kernels(step), draw(shape, seed, input_class), shape, input_class)


@every_step
@pytest.mark.parametrize("topk", [3, 8])
@pytest.mark.parametrize("softcap", [0.0, 3.0])
def test_operands_that_are_not_finite_spoil_only_their_token(
    kernels: Get, step: str, topk: int, softcap: float
) -> None:
    shape = MoeShape("x", 1, 256, 384, 40, topk, softcap=softcap)
    inputs, spoiled = with_spoiled_tokens(shape, 6, DEVICE)
    call_and_judge(kernels(step), inputs, replace(shape, m=len(spoiled)), "random")
    assert torch.equal(torch.isnan(inputs.data.output).all(dim=1).cpu(), spoiled)


@every_step
@every_stream
def test_tokens_grow_and_shrink(kernels: Get, step: str, own: bool, stream: None) -> None:
    for m in (16, 300, 1, 128, 2048, 7, 300, 16):
        shape = MoeShape("x", m, 256, 512, 32, 4)
        call_and_judge(kernels(step), draw(shape, m), shape, "random")


@every_step
@every_stream
def test_two_shapes_take_turns(kernels: Get, step: str, own: bool, stream: None) -> None:
    """Without a wait between the calls but for those of the step itself."""
    kernel = kernels(step)
    shapes = (MoeShape("x", 130, 256, 512, 32, 4), MoeShape("y", 5, 384, 1152, 200, 8, softcap=9.0))
    operands = [draw(shape, 1) for shape in shapes]
    outputs = []
    for turn in range(10):
        inputs = operands[turn % 2]
        poison(inputs, turn)
        outputs.append(kernel(inputs.data).clone())
    for turn, output in enumerate(outputs):
        expect_right(output, operands[turn % 2], shapes[turn % 2])


@every_step
@every_stream
def test_calls_on_the_same_values_give_the_same_bits(
    kernels: Get, step: str, own: bool, stream: None
) -> None:
    inputs = draw(TWO, 2)
    outputs = []
    for turn in range(20):
        poison(inputs, turn)
        outputs.append(kernels(step)(inputs.data).clone())
    expect_right(outputs[0], inputs, TWO)
    assert all(torch.equal(bits(output), bits(outputs[0])) for output in outputs)


def captured(kernel: Kernel, inputs: Inputs) -> torch.cuda.CUDAGraph:
    """A graph of one call, which has been made before: memory is kept from it."""
    kernel(inputs.data)
    torch.cuda.synchronize(DEVICE)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream(DEVICE)):
        kernel(inputs.data)
    return graph


@pytest.mark.parametrize("step", CAPTURED)
@every_stream
def test_a_graph_is_replayed_on_new_values(
    kernels: Get, step: str, own: bool, stream: None
) -> None:
    inputs, values = draw(TWO, 3), [draw(TWO, seed) for seed in (3, 4)]
    graph = captured(kernels(step), inputs)
    outputs: list[list[torch.Tensor]] = [[], []]
    for turn in range(20):
        refill(inputs, values[turn % 2])
        poison(inputs, turn)
        graph.replay()
        outputs[turn % 2].append(inputs.data.output.clone())
    for of_values, drawn in zip(outputs, values, strict=True):
        expect_right(of_values[0], drawn, TWO)
        assert all(torch.equal(bits(output), bits(of_values[0])) for output in of_values)


@pytest.mark.parametrize("step", OWN_WORKSPACE)
def test_calls_on_two_streams_are_in_flight_together(kernels: Get, step: str) -> None:
    """Small ones, so that both fit the GPU at once, and of either kind: few routes and many."""
    kernel = kernels(step)
    for shape in (MoeShape("few", 4, 256, 512, 32, 4), MoeShape("many", 300, 256, 512, 8, 2)):
        operands = [draw(shape, seed) for seed in (1, 2)]
        streams = [torch.cuda.Stream(DEVICE) for _ in operands]
        torch.cuda.synchronize(DEVICE)
        for _ in range(20):
            for inputs, where in zip(operands, streams, strict=True):
                with torch.cuda.stream(where):
                    kernel(inputs.data)
        torch.cuda.synchronize(DEVICE)
        for inputs in operands:
            expect_right(inputs.data.output, inputs, shape)


@pytest.mark.parametrize("step", CAPTURED)
@every_stream
def test_graphs_of_two_shapes_take_turns_with_calls(
    kernels: Get, step: str, own: bool, stream: None
) -> None:
    """The largest first: a call that makes the kept memory grow would end the others' graphs."""
    kernel = kernels(step)
    shapes = [MoeShape("x", m, 256, 512, 32, 4) for m in (200, 3)]
    operands = [draw(shape, 5) for shape in shapes]
    graphs = [captured(kernel, inputs) for inputs in operands]
    between = MoeShape("z", 60, 128, 256, 20, 2)
    more = draw(between, 6)
    for turn in range(8):
        inputs = operands[turn % 2]
        poison(inputs, turn)
        poison(more, turn)
        graphs[turn % 2].replay()
        kernel(more.data)
        expect_right(inputs.data.output, inputs, shapes[turn % 2])
        expect_right(more.data.output, more, between)


@every_step
def test_tensors_of_another_device_are_refused(kernels: Get, step: str) -> None:
    inputs = draw(TWO, 1)
    for name in ("hidden", "weights", "output"):
        elsewhere = inputs.data._replace(**{name: getattr(inputs.data, name).cpu()})
        with pytest.raises(ValueError, match=f"{name}: expected a dense .* on cuda:.* found") as e:
            kernels(step)(elsewhere)
        assert "\n" not in str(e.value)
    call_and_judge(kernels(step), inputs, TWO, "random")
