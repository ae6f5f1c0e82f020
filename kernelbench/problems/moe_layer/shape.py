"""The data and the shape of a MoE layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch


class LayerData(NamedTuple):
    """What a step receives: h hidden and i intermediate values of a token."""

    hidden: torch.Tensor  #: bfloat16 ``[m, h]``, the tokens.
    #: int32 ``[m, topk]``, the experts that the router chose. Beyond 0 to e - 1: none.
    ids: torch.Tensor
    expert_weights: torch.Tensor  #: float32 ``[m, topk]``, the experts' weights in the token's sum.
    w13: torch.Tensor  #: float8_e4m3fn ``[e, 2 i, h]``: rows of the gate, then rows of up.
    w13_scales: torch.Tensor  #: float32 ``[e, 2 i / 128, h / 128]``.
    w2: torch.Tensor  #: float8_e4m3fn ``[e, h, i]``.
    w2_scales: torch.Tensor  #: float32 ``[e, h / 128, i / 128]``.
    output: torch.Tensor  #: float32 ``[m, h]``, to be written.


@dataclass(frozen=True)
class LayerShape:
    """Tokens m, hidden h, intermediate i, experts e, experts of a token topk.

    ``routing`` is that of :class:`kernelbench.problems.fused_moe.shape.MoeShape`.
    """

    name: str
    m: int
    h: int
    i: int
    e: int
    topk: int
    routing: str = "uniform"

    def describe(self) -> str:
        """For example ``m=128 h=2048 i=512 e=256 topk=8``."""
        text = f"m={self.m} h={self.h} i={self.i} e={self.e} topk={self.topk}"
        return text if self.routing == "uniform" else f"{text} routing={self.routing}"
