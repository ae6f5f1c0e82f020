"""MoE steps on the emulator beyond the shapes at the edges: any shape that the problem admits, the
checker's own shapes, thousands of tokens, operands that are not finite, and calls to be refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from moe_cases import EMULATED, ROOT, STEPS, Kernel, any_shape, call_and_judge, with_spoiled_tokens
from test_moe_steps import emulated_on, kernels, lineages, needs_compiler

from kernelbench.emulator import findings
from kernelbench.executors.emulated import EMULATOR
from kernelbench.kinds import compiled
from kernelbench.problems.fused_moe.problem import PROBLEM
from kernelbench.problems.fused_moe.shape import MoeData, MoeShape
from kernelbench.problems.group_gemm.problem import PROBLEM as GROUP_GEMM
from kernelbench.problems.moe_layer.problem import PROBLEM as LAYER
from kernelbench.project.arena import bits
from kernelbench.project.registry import Lineages
from kernelbench.project.shapes import load_shapes

__all__ = ["kernels", "lineages"]  # fixtures

SHAPES = load_shapes(
    ROOT / "shapes.yaml", {each.name: each for each in (PROBLEM, GROUP_GEMM, LAYER)}
)
Get = Callable[[str], Kernel]

pytestmark = needs_compiler
every_step = pytest.mark.parametrize("step", EMULATED)
#: For what takes seconds and is to the code that steps share: of seven kernels and of one.
_ENDS = ("m00", STEPS[-1])
ends_of_the_line = pytest.mark.parametrize(
    "step",
    [each if each in _ENDS else pytest.param(each, marks=pytest.mark.long) for each in STEPS],
)


def right(kernel: Kernel, shape: MoeShape, input_class: str, seed: int) -> None:
    inputs = PROBLEM.make_inputs(shape, input_class, seed, "cpu")
    call_and_judge(kernel, inputs, shape, input_class)


@every_step
@pytest.mark.parametrize("seed", range(6))
def test_any_shape(kernels: Get, step: str, seed: int) -> None:
    shape = any_shape(seed)
    right(kernels(step), shape, PROBLEM.input_classes[seed % 3], seed)


@every_step
@pytest.mark.parametrize("name", PROBLEM.check_shapes)
def test_shapes_of_the_checker(kernels: Get, step: str, name: str) -> None:
    right(kernels(step), cast(MoeShape, SHAPES[name]), "structured", 2)


@ends_of_the_line
def test_thousands_of_tokens(kernels: Get, step: str) -> None:
    shape = MoeShape("thousands", 4096, 128, 128, 16, 1, routing="skewed")
    right(kernels(step), shape, "random", 1)


@every_step
def test_every_token_to_the_same_eight_of_many(kernels: Get, step: str) -> None:
    shape = MoeShape("one", 65, 128, 128, 256, 8, routing="one")
    right(kernels(step), shape, "random", 1)


PLAIN = MoeShape("plain", 1, 128, 256, 9, 3)
CAPPED = replace(PLAIN, name="capped", renormalize=False, softcap=3.0)
ALL = replace(PLAIN, name="all", e=8, topk=8)
ONE = replace(PLAIN, name="one", e=300, topk=8, routing="one")


@every_step
@pytest.mark.parametrize("shape", [PLAIN, CAPPED, ALL, ONE], ids=lambda shape: shape.name)
def test_operands_that_are_not_finite_spoil_only_their_token(
    kernels: Get, step: str, shape: MoeShape
) -> None:
    inputs, spoiled = with_spoiled_tokens(shape, 6, "cpu")
    shape = replace(shape, m=len(spoiled))
    call_and_judge(kernels(step), inputs, shape, "random")
    output = inputs.data.output
    assert torch.equal(torch.isnan(output).all(dim=1), spoiled)
    assert bool(torch.isfinite(output[~spoiled]).all())


@pytest.fixture
def checked(lineages: Lineages, step: str) -> Iterator[Callable[[MoeData, int], torch.Tensor]]:
    """``checked(data, seed)``: a call under the checker, on the schedule of that seed."""
    target = emulated_on(step)
    entry = EMULATOR.open(lineages.get(step), check=True)
    kernel = compiled.bind_problem(PROBLEM, entry, lineages.get(step), target.device)
    runtime, symbols = entry.emulation, compiled.symbols_of(lineages.get(step))
    assert runtime is not None

    def call(data: MoeData, seed: int) -> torch.Tensor:
        runtime.configure(target.emulation, check=True, seed=seed)
        output = kernel(data)
        found = findings.resolve_report(runtime.report(), symbols)
        assert not found.findings, found.headline()
        return output

    yield call
    runtime.configure(target.emulation)


@ends_of_the_line
@pytest.mark.parametrize("shape", [PLAIN, ONE], ids=lambda shape: shape.name)
def test_the_checker_finds_nothing_where_operands_are_not_finite(
    checked: Callable[[MoeData, int], torch.Tensor], step: str, shape: MoeShape
) -> None:
    """No access outside of a buffer, whatever the routing makes of the operands."""
    inputs, spoiled = with_spoiled_tokens(shape, 4, "cpu")
    call_and_judge(lambda data: checked(data, 5), inputs, replace(shape, m=len(spoiled)), "random")


@ends_of_the_line
def test_two_experts_a_token_give_the_same_bits_on_every_schedule(
    checked: Callable[[MoeData, int], torch.Tensor], step: str
) -> None:
    shape = MoeShape("two", 20, 128, 384, 6, 2)
    inputs = PROBLEM.make_inputs(shape, "random", 8, "cpu")
    outputs = [bits(checked(inputs.data, seed)).clone() for seed in range(4)]
    assert all(torch.equal(output, outputs[0]) for output in outputs)


def shifted(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, dense, at an address that is no multiple of 16."""
    space = torch.zeros(tensor.numel() + 16, dtype=tensor.dtype)
    first = next(i for i in range(16) if space[i:].data_ptr() % 16)
    return space[first : first + tensor.numel()].view(tensor.shape).copy_(tensor)


def strided(tensor: torch.Tensor) -> torch.Tensor:
    """The same values with a gap after each row."""
    *outer, columns = tensor.shape
    space = torch.zeros(*outer, columns + 16, dtype=tensor.dtype)
    return space[..., :columns].copy_(tensor)


#: Operand, what is done to it, and what the message says.
TENSORS = ("hidden", "gating", "weights", "weight_scales", "output")
CHANGES: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "strides": (strided, "{0}: expected a dense"),
    "address": (shifted, "{0} is null or not aligned to 16 bytes"),
    "dtype": (lambda t: t.to(torch.float16), "{0}: expected a dense"),
    "device": (lambda t: t.to("meta"), ": expected a dense .* on cpu, found .* on meta"),
    "rank": (lambda t: t.unsqueeze(0), ": expected "),
    "fewer": (lambda t: t[1:], ": expected a dense .*, found "),
    "empty": (lambda t: t[:0], "expected"),
    "no tensor": (lambda t: t.tolist(), "{0}: expected a tensor.*, found list"),
}
OPTIONS: dict[str, tuple[Any, str]] = {
    "topk of none": ({"topk": 0}, "topk = 0: expected a positive 32-bit integer"),
    "topk of more than there are": ({"topk": 8}, "topk = 8: expected 1 to 7"),
    "topk of nine": ({"topk": 9}, "topk = 9: expected 1 to"),
    "topk of 2.0": ({"topk": 2.0}, "topk: expected an integer, found float"),
    "negative softcap": ({"softcap": -1.0}, "softcap = -1.000000: expected 0 or a bound"),
    "no softcap": ({"softcap": None}, "softcap: expected a number, found NoneType"),
    "infinite softcap": ({"softcap": float("inf")}, "softcap = inf: expected 0 or a bound"),
}
REFUSED: dict[str, tuple[Callable[[MoeData], MoeData], str]] = {
    f"{what} of {name}": (
        lambda data, name=name, change=change: data._replace(**{name: change(getattr(data, name))}),
        message.format(name),
    )
    for what, (change, message) in CHANGES.items()
    for name in TENSORS
} | {
    what: (lambda data, options=options: data._replace(**options), message)
    for what, (options, message) in OPTIONS.items()
}


@ends_of_the_line
@pytest.mark.filterwarnings("ignore:The number of outputs")
def test_wrong_calls_are_refused_in_one_line_before_anything_runs(kernels: Get, step: str) -> None:
    shape = MoeShape("x", 5, 256, 384, 7, 3)
    inputs = PROBLEM.make_inputs(shape, "structured", 1, "cpu")
    kernel = kernels(step)
    poison = inputs.arena.draw_poison(1)
    inputs.arena.fill(poison)
    for what, (change, message) in REFUSED.items():
        with pytest.raises((ValueError, NotImplementedError), match=message) as caught:
            kernel(change(inputs.data))
        assert "\n" not in str(caught.value), what
        assert all(bool(left.all()) for left in inputs.arena.unwritten(poison)), what
    call_and_judge(kernel, inputs, shape, "structured")
