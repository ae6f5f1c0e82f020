"""What tests of the fused MoE share: its steps, shapes at random, calls that are judged, and every
way in which a token's operands are not finite."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernelbench.problems.fused_moe.problem import PROBLEM
from kernelbench.problems.fused_moe.shape import ROUTINGS, MoeData, MoeShape
from kernelbench.project.problem import Inputs
from kernelbench.project.project_file import find_project
from kernelbench.project.registry import load_lineages

ROOT = Path(__file__).resolve().parents[1]
Kernel = Callable[[MoeData], torch.Tensor]

_WORKING = [
    step
    for step in load_lineages(find_project(ROOT)).steps_of("moe")
    if step.compiled and step.status == "works" and not step.experiment
]
#: Names of the compiled steps of the main line that are said to work.
STEPS = [step.name for step in _WORKING]
#: Steps between others: what they have, those around them have, and the code lock says that they
#: are what `make test-long` last ran on the emulator.
_BETWEEN = {f"m{number:02}" for number in (1, 3, 6, 8, *range(11, 16), *range(17, 24))}
#: For tests that build them for the emulator.
EMULATED = [
    pytest.param(name, marks=pytest.mark.long) if name in _BETWEEN else name for name in STEPS
]
#: Those that never wait for the stream: a call of theirs can be part of a graph.
CAPTURED = [step.name for step in _WORKING if step.config.get("synchronize") == "none"]
#: Those whose calls on two streams may be in flight together.
OWN_WORKSPACE = [step.name for step in _WORKING if step.config.get("workspace") == "stream"]

EVERY = slice(None)
#: operand, columns, value -> whether the token's output is NaN (without, with a softcap).
#: Written for at least six experts and 256 inputs.
NOT_FINITE: dict[str, tuple[str, int | slice, float, tuple[bool, bool]]] = {
    "hidden nan": ("hidden", 200, math.nan, (True, True)),
    "hidden inf": ("hidden", 0, math.inf, (True, True)),
    "hidden -inf": ("hidden", 255, -math.inf, (True, True)),
    "hidden all nan": ("hidden", EVERY, math.nan, (True, True)),
    "hidden all -inf": ("hidden", EVERY, -math.inf, (True, True)),
    "gating nan": ("gating", 1, math.nan, (True, True)),
    "gating all nan": ("gating", EVERY, math.nan, (True, True)),
    "gating inf": ("gating", 1, math.inf, (True, False)),
    "gating two inf": ("gating", slice(2, 4), math.inf, (True, False)),
    "gating all inf": ("gating", EVERY, math.inf, (True, False)),
    "gating one -inf": ("gating", 1, -math.inf, (False, False)),
    "gating one left": ("gating", slice(1, None), -math.inf, (False, False)),
    "gating all -inf": ("gating", EVERY, -math.inf, (True, False)),
}
#: Bits of NaNs that a float has beside math.nan: negative, and with another payload.
NAN_BITS = (-1, -0x400000, 0x7F800001)


def any_shape(seed: int) -> MoeShape:
    """A shape that the problem and the steps admit; about as many small sizes as large ones."""
    rng = random.Random(seed)
    m, e = (int(2 ** rng.uniform(0, bits)) for bits in (7, 9.01))
    blocks_n, blocks_k = (1, 1) if e > 32 else (rng.randint(1, 3), rng.randint(1, 6))
    return MoeShape(
        "any",
        m,
        128 * blocks_n,
        128 * blocks_k,
        e,
        rng.randint(1, min(8, e)),
        renormalize=rng.random() < 0.5,
        softcap=rng.choice((0.0, 0.0, 1.5, 30.0)),
        routing=rng.choice(ROUTINGS),
    )


def call_and_judge(kernel: Kernel, inputs: Inputs, shape: MoeShape, input_class: str) -> None:
    """Right, wherever a value belongs, and nothing else written."""
    poison = inputs.arena.draw_poison(shape.m)
    inputs.arena.fill(poison)
    operands = [operand.clone() for operand in inputs.operands]
    output = kernel(inputs.data)
    reference = PROBLEM.reference(inputs, shape, input_class)
    result = PROBLEM.compare([output], reference, shape, input_class)
    assert result.ok, f"{shape.describe()} {input_class}: {result.reason}"
    assert inputs.arena.guards_intact(poison)
    for operand, before in zip(inputs.operands, operands, strict=True):
        assert torch.equal(operand.view(torch.uint8), before.view(torch.uint8))


def spoil(inputs: Inputs, token: int, case: str) -> None:
    """Write one case of ``NOT_FINITE`` to a token."""
    operand, columns, value, _ = NOT_FINITE[case]
    getattr(inputs.data, operand)[token, columns] = value


def with_spoiled_tokens(shape: MoeShape, seed: int, device: str) -> tuple[Inputs, torch.Tensor]:
    """Operands in which every third token is spoiled in its own way.

    Args:
        shape: ``m`` is replaced by what the cases need.
        seed: Of the operands.
        device: ``cpu`` or ``cuda:N``.

    Returns:
        The inputs, and which tokens must be NaN, bool ``[m]`` on the CPU.
    """
    shape = replace(shape, m=3 * (len(NOT_FINITE) + len(NAN_BITS)) + 1)
    inputs = PROBLEM.make_inputs(shape, "random", seed, device)
    spoiled = torch.zeros(shape.m, dtype=torch.bool)
    for token, (case, (_, _, _, nan)) in zip(
        range(1, shape.m, 3), NOT_FINITE.items(), strict=False
    ):
        spoil(inputs, token, case)
        spoiled[token] = nan[shape.softcap > 0]
    for token, bits in zip(range(3 * len(NOT_FINITE) + 1, shape.m, 3), NAN_BITS, strict=False):
        inputs.data.gating.view(torch.int32)[token, 2] = bits
        spoiled[token] = True
    return inputs, spoiled
