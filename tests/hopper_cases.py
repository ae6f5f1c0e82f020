"""What tests of the Hopper lineage share: its steps, and group GEMMs at random."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelbench.problems.group_gemm.problem import PROBLEM
from kernelbench.problems.group_gemm.shape import GroupGemmShape

ROOT = Path(__file__).resolve().parents[1]
HOPPER = ROOT / "hopper"
STEPS = sorted(file.parent.name for file in HOPPER.glob("h*/launch.cu"))
#: Of a random problem.
MOST_GROUPS, MOST_TOKENS, MOST_N, MOST_K = 16, 400, 3000, 6000


def any_problem(seed: int, limits: Mapping[str, Any]) -> GroupGemmShape:
    """Up to 16 groups of 0 to 400 tokens, within a step's limits; small sizes are as likely as
    large ones, and some problems have one N and one K."""
    rng = random.Random(seed)
    groups = rng.randint(1, min(MOST_GROUPS, limits.get("max_groups", MOST_GROUPS)))

    def sizes(most: int, multiple: int) -> list[int]:
        count = 1 if rng.random() < 0.3 or limits.get("nk") == "fixed" else groups
        return [multiple * int((most / multiple) ** rng.random()) for _ in range(count)]

    least = limits.get("least_m", 0)
    m = [
        least if rng.random() < 0.1 else max(least, int(MOST_TOKENS ** rng.random()))
        for _ in range(groups)
    ]
    fields = {"m": m, "n": sizes(MOST_N, 8), "k": sizes(MOST_K, 64)}
    return PROBLEM.parse_shape(f"random {seed}", fields)
