"""The routed experts of a block-scaled FP8 MoE layer on a Hopper GPU, as a torch op."""

from __future__ import annotations

from kernelbench_moe.op import RefusedError, moe_layer, why_not
from kernelbench_moe.table import TABLE

__all__ = ["TABLE", "RefusedError", "__version__", "moe_layer", "why_not"]
__version__ = "0.1.0"
