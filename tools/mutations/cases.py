"""What mutants run on: shapes, inputs and what must come out, and schedules of them, by problem."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kernelbench.kinds.protocol import CompiledProblem
from kernelbench.problems.fused_moe.problem import PROBLEM as FUSED_MOE
from kernelbench.problems.group_gemm.problem import PROBLEM as GROUP_GEMM
from kernelbench.project.model import Step
from kernelbench.project.problem import Inputs

ROOT = Path(__file__).resolve().parents[2]
#: In turn. Three SMs leave one without a cluster; four hold two, ten enough for a single wave.
SMS = (1, 2, 3, 4, 10)
#: What shapes of the group GEMM are for: groups that change (u1, u2), several tiles along every
#: dimension (u3), N and K by group (t3) and each alone (n, k), rings that wrap twice, tiles and
#: rows that are cut, a group for every tile (ones), a queue of tiles that wraps nine times (many).
_GROUP_GEMM: dict[str, dict[str, Any]] = {
    "u1": {"m": [1, 17, 129], "n": 256, "k": 512},
    "u2": {"m": [8, 16, 24, 32, 40, 48, 56, 64], "n": 384, "k": 256},
    "u3": {"m": [40, 76, 168, 72, 164], "n": 512, "k": 768},
    "t3": {"m": [80, 128, 256], "n": [384, 256, 128], "k": [256, 512, 256]},
    "ring": {"m": [40, 129], "n": 128, "k": 4096},
    "ragged": {"m": [1, 129, 40], "n": 200, "k": 512},
    "ones": {"m": [24, 128, 1, 64, 100, 8, 127, 33], "n": 128, "k": 256},
    "many": {"m": [300, 260, 384, 257, 290, 310, 330, 270], "n": 512, "k": 256},
    "n": {"m": [40, 129], "n": [128, 384], "k": 256},
    "k": {"m": [129, 40], "n": 256, "k": [256, 768]},
}
#: Shape, class of inputs, seed.
_Tried = tuple[tuple[str, str, int], ...]
_GROUP_GEMM_TRIED: _Tried = (
    ("u1", "gpu-mode", 2), ("ring", "structured", 2), ("ragged", "gpu-mode", 1),
    ("u1", "structured", 1), ("t3", "structured", 2), ("u2", "gpu-mode", 1),
    ("ring", "gpu-mode", 1), ("ragged", "structured", 2), ("u3", "gpu-mode", 1),
    ("t3", "gpu-mode", 1), ("ones", "gpu-mode", 1), ("n", "gpu-mode", 1), ("k", "gpu-mode", 1),
    ("many", "gpu-mode", 1),
)  # fmt: skip
#: More routes than 512 threads have on their way at a time; the others are the project's.
_FUSED_MOE: dict[str, dict[str, Any]] = {
    "routes": {"m": 200, "n": 128, "k": 128, "e": 64, "topk": 8}
}
_FUSED_MOE_TRIED: _Tried = (
    ("s0", "random", 1), ("s2", "structured", 1), ("s5", "random", 1), ("s8", "skewed", 1),
    ("s6", "structured", 1), ("s3", "random", 1), ("s4", "structured", 1), ("s11", "random", 1),
    ("s1", "structured", 1), ("s7", "random", 1), ("s2", "skewed", 2), ("s9", "random", 1),
    ("s10", "random", 1), ("s3", "structured", 2), ("s12", "random", 1), ("s13", "structured", 1),
    ("routes", "random", 1),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A shape with inputs and what must come out."""

    name: str
    problem: CompiledProblem
    shape: Any
    inputs: Inputs
    pristine: Inputs
    reference: Any
    input_class: str


#: By what ``lineage.toml`` says.
_PROBLEMS: dict[str, tuple[CompiledProblem, _Tried]] = {
    "kernelbench.problems.group_gemm:PROBLEM": (GROUP_GEMM, _GROUP_GEMM_TRIED),
    "kernelbench.problems.fused_moe:PROBLEM": (FUSED_MOE, _FUSED_MOE_TRIED),
}


def number_of_cases(problem: str) -> int:
    """The pairs of shape and inputs for the steps of a problem."""
    return len(_PROBLEMS[problem][1])


def cases(step: Step) -> list[Case]:
    """The inputs that a step takes, in the order in which they are tried."""
    return [
        case
        for case in _cases(step.problem)
        if not case.problem.broken_limit(case.shape, step.limits)
    ]


@functools.cache
def _cases(where: str) -> list[Case]:
    problem, tried = _PROBLEMS[where]
    shapes = _shapes(problem.name)
    found = []
    for name, input_class, seed in tried:
        shape = problem.parse_shape(name, shapes[name])
        inputs, pristine = (problem.make_inputs(shape, input_class, seed, "cpu") for _ in range(2))
        reference = problem.reference(pristine, shape, input_class)
        label = f"{name} {input_class}"
        found.append(Case(label, problem, shape, inputs, pristine, reference, input_class))
    return found


def _shapes(problem: str) -> Mapping[str, dict[str, Any]]:
    if problem == "group_gemm":
        return _GROUP_GEMM
    shapes: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "shapes.yaml").read_text())[problem]
    return shapes | _FUSED_MOE


def schedules(given: Sequence[Case], rounds: int) -> Iterator[tuple[Case, int, int]]:
    """``(case, SMs, seed)``: every case in every round, SMs in turn."""
    for seed in range(rounds):
        for index, case in enumerate(given):
            yield case, SMS[(seed + index) % len(SMS)], seed
