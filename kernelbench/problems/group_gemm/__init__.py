"""NVFP4 block-scaled group GEMM: the problem, its data, reference and tolerances."""

from __future__ import annotations

from kernelbench.problems.group_gemm.problem import PROBLEM, GroupGemm
from kernelbench.problems.group_gemm.shape import GroupGemmShape

__all__ = ["PROBLEM", "GroupGemm", "GroupGemmShape"]
