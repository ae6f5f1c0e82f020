"""Hopper steps on a Hopper GPU: 200 problems at random, streams, graphs, memory that is kept.

What ``kernelbench run`` checks of every step (late inputs, a busy device, each class of inputs) is
not repeated here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from hopper_cases import ROOT, STEPS, any_problem
from test_native_parity import hopper, needs_nvcc

from kernelbench.executors import targets
from kernelbench.kinds import python_step
from kernelbench.kinds.callables import with_untimed_setup
from kernelbench.machine import devices
from kernelbench.problems.group_gemm.problem import PROBLEM
from kernelbench.problems.group_gemm.shape import GroupGemmShape
from kernelbench.project.arena import bits
from kernelbench.project.model import Step
from kernelbench.project.problem import Inputs
from kernelbench.project.project_file import find_project
from kernelbench.project.registry import load_lineages

pytestmark = [pytest.mark.gpu, hopper, needs_nvcc]

Kernel = Callable[[Any], list[torch.Tensor]]
Get = Callable[[str], Kernel]
DEVICE = next((f"cuda:{gpu.index}" for gpu in devices.gpus() if gpu.capability == (9, 0)), "cpu")
LINEAGES = load_lineages(find_project(ROOT))
#: Whole tiles of several widths, and few tiles, of which h06 and later split K.
SHAPES = (
    PROBLEM.parse_shape("tiles", {"m": [130, 1, 300], "n": [264, 8, 136], "k": [64, 192, 448]}),
    PROBLEM.parse_shape("parts", {"m": [16, 5], "n": [4096, 128], "k": [7168, 4096]}),
)
PEERS = [step.name for step in LINEAGES.steps_of("peers.hopper")]
every_step = pytest.mark.parametrize("step", STEPS)
every_stream = pytest.mark.parametrize("own", [False, True], ids=["default", "own-stream"])


def step_of(name: str) -> Step:
    return LINEAGES.get(name)


@pytest.fixture(scope="module")
def kernels() -> Get:
    """A step's callable on the GPU."""
    loaded: dict[str, Kernel] = {}

    def get(name: str) -> Kernel:
        if name not in loaded:
            step = step_of(name)
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


def draw(shape: GroupGemmShape, seed: int, input_class: str = "gpu-mode") -> Inputs:
    inputs = PROBLEM.make_inputs(shape, input_class, seed, DEVICE)
    inputs.arena.fill(inputs.arena.draw_poison(seed))
    return inputs


def expect_right(
    outputs: Sequence[torch.Tensor],
    inputs: Inputs,
    shape: GroupGemmShape,
    input_class: str = "gpu-mode",
) -> None:
    reference = PROBLEM.reference(inputs, shape, input_class)
    result = PROBLEM.compare(outputs, reference, shape, input_class)
    assert result.ok, f"{shape.name}, {shape.groups}: {result.reason}"


@every_step
def test_any_problem(kernels: Get, step: str) -> None:
    """Bitwise where sums are exact, within the bound where they are not."""
    for seed in range(200):
        shape = any_problem(seed, step_of(step).limits)
        input_class = ("gpu-mode", "gpu-mode", "full", "structured")[seed % 4]
        inputs = draw(shape, seed, input_class)
        poison = inputs.arena.draw_poison(seed)
        outputs = PROBLEM.outputs_of(kernels(step)(inputs.data), inputs)
        assert inputs.arena.guards_intact(poison), f"{shape.name}: written outside the outputs"
        expect_right(outputs, inputs, shape, input_class)


@pytest.mark.parametrize("name", PEERS)
def test_peers_are_right(name: str) -> None:
    step = step_of(name)
    if not python_step.runs_on_gpu(step, devices.gpus()[0], "")[0]:
        pytest.skip(f"{name} does not run here")
    kernel = with_untimed_setup(python_step.load_python_step(step))
    for seed in range(12):
        shape = any_problem(seed, step.limits)
        input_class = PROBLEM.input_classes[seed % 3]
        inputs = draw(shape, seed, input_class)
        outputs = PROBLEM.outputs_of(kernel(inputs.data), inputs)
        expect_right(outputs, inputs, shape, input_class)


@every_step
@every_stream
def test_shapes_take_turns(kernels: Get, step: str, own: bool, stream: None) -> None:
    """Without a wait between the calls but for those of the step itself."""
    operands = [draw(shape, 1) for shape in SHAPES]
    results = []
    for turn in range(10):
        inputs = operands[turn % 2]
        inputs.arena.fill(inputs.arena.draw_poison(turn))
        results.append([output.clone() for output in kernels(step)(inputs.data)])
    for turn, outputs in enumerate(results):
        expect_right(outputs, operands[turn % 2], SHAPES[turn % 2])


@every_step
def test_calls_on_two_streams_do_not_disturb_each_other(kernels: Get, step: str) -> None:
    for shape in SHAPES:
        streams = [torch.cuda.Stream(DEVICE) for _ in range(2)]
        operands = [draw(shape, seed) for seed in range(2)]
        torch.cuda.synchronize(DEVICE)
        for _ in range(10):
            for where, inputs in zip(streams, operands, strict=True):
                with torch.cuda.stream(where):
                    kernels(step)(inputs.data)
        torch.cuda.synchronize(DEVICE)
        for inputs in operands:
            expect_right(inputs.outputs, inputs, shape)


@every_step
def test_a_graph_is_replayed_on_new_values(kernels: Get, step: str) -> None:
    for shape in SHAPES:
        inputs = draw(shape, 3)
        where = torch.cuda.Stream(DEVICE)
        with torch.cuda.stream(where):
            kernels(step)(inputs.data)  # memory is kept from it
        torch.cuda.synchronize(DEVICE)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=where):
            kernels(step)(inputs.data)
        for seed in (4, 5):
            other = draw(shape, seed)
            for operand, value in zip(inputs.operands, other.operands, strict=True):
                bits(operand).copy_(bits(value))
            inputs.arena.fill(inputs.arena.draw_poison(seed))
            torch.cuda.synchronize(DEVICE)
            graph.replay()
            torch.cuda.synchronize(DEVICE)
            expect_right(inputs.outputs, inputs, shape)
