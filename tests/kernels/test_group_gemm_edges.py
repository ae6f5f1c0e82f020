"""Steps of the group GEMM on the emulator where tiles are ragged: columns that fill no tile, one
row and just over a tile of them, fewer tiles than SMs and several for each, groups in one launch.

The shapes of ``shapes.yaml`` have N in multiples of 128, so that a tile of any width ends with a
whole row of scale atoms.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelbench.build import compiler
from kernelbench.emulator.settings import Emulation
from kernelbench.executors.emulated import EMULATOR
from kernelbench.executors.targets import Target
from kernelbench.problems.group_gemm.problem import PROBLEM
from kernelbench.project.step_files import read_lineage, read_step

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
STEPS = sorted({file.parent.name for file in KERNELS.glob("v*/step.toml")} - {"v00"})  # torch
#: Steps whose tiles' edges are those of the step before; they are in `make test-long`.
BETWEEN = ("v02", "v03", "v05", "v06", "v09", "v10", "v12", "v14", "v18", "v19", "v21")

#: By what is at its edge. Numbers of SMs are small, so that CTAs do several tiles and change group.
SHAPES: dict[str, tuple[int, dict[str, Any]]] = {
    "a tile's second row of atoms is missing": (2, {"m": [130, 1, 5], "n": 264, "k": 512}),
    "a tile's second row of atoms has one column's worth": (3, {"m": [7, 129], "n": 136, "k": 256}),
    "fewer columns than a chunk": (1, {"m": [1, 200], "n": 8, "k": 1792}),
    "one tile for 148 SMs": (148, {"m": 3, "n": 40, "k": 256}),
}

Kernel = Callable[[Any], list[torch.Tensor]]

pytestmark = pytest.mark.skipif(compiler.host_compiler() is None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def kernels() -> Callable[[str, int], Kernel]:
    """``kernels(step, sms)``: a step's callable; what its launch finds fails the call."""
    loaded: dict[tuple[str, int], Kernel] = {}
    lineage = read_lineage(KERNELS)

    def get(step: str, sms: int) -> Kernel:
        if (step, sms) not in loaded:
            target = Target(EMULATOR, "cpu", None, Emulation(sms=sms))
            loaded[step, sms] = EMULATOR.load(
                read_step(KERNELS / step, lineage), PROBLEM, target, 0.0
            )
        return loaded[step, sms]

    return get


@pytest.mark.parametrize("edge", SHAPES)
@pytest.mark.parametrize(
    "step", [pytest.param(s, marks=pytest.mark.long) if s in BETWEEN else s for s in STEPS]
)
def test_ragged_tiles(kernels: Callable[[str, int], Kernel], step: str, edge: str) -> None:
    sms, fields = SHAPES[edge]
    shape = PROBLEM.parse_shape("edge", fields)
    kernel = kernels(step, sms)
    for seed, name in enumerate(("structured", "full")):
        inputs = PROBLEM.make_inputs(shape, name, seed, "cpu")
        poison = inputs.arena.draw_poison(seed)
        inputs.arena.fill(poison)
        outputs = PROBLEM.outputs_of(kernel(inputs.data), inputs)
        assert inputs.arena.guards_intact(poison), "written outside the outputs"
        comparison = PROBLEM.compare(outputs, PROBLEM.reference(inputs, shape, name), shape, name)
        assert comparison.ok, comparison.reason
