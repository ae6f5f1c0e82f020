"""A whole MoE layer in blockwise FP8, behind its router: problem, data and reference."""

from __future__ import annotations

from kernelbench.problems.moe_layer.problem import PROBLEM, MoeLayer
from kernelbench.problems.moe_layer.shape import LayerData, LayerShape

__all__ = ["PROBLEM", "LayerData", "LayerShape", "MoeLayer"]
