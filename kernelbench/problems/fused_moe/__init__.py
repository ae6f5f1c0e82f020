"""Fused mixture of experts with block-wise FP8: the problem, its data, reference and tolerances."""

from __future__ import annotations

from kernelbench.problems.fused_moe.problem import PROBLEM, FusedMoe
from kernelbench.problems.fused_moe.shape import MoeData, MoeShape

__all__ = ["PROBLEM", "FusedMoe", "MoeData", "MoeShape"]
