"""The data and the shape of a fused mixture of experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch


ROUTINGS = ("uniform", "skewed", "one")
INTERMEDIATES = ("float32", "bfloat16")


class MoeData(NamedTuple):
    """What a step receives."""

    hidden: torch.Tensor  #: bfloat16 ``[m, k]``, the tokens.
    gating: torch.Tensor  #: float32 ``[m, e]``, the router's logits.
    weights: torch.Tensor  #: float8_e4m3fn ``[e, n, k]``, K contiguous.
    weight_scales: torch.Tensor  #: float32 ``[e, n / 128, k / 128]``.
    output: torch.Tensor  #: float32 ``[m, n]``, to be written.
    topk: int  #: Experts per token.
    renormalize: bool  #: Whether the selected weights are divided by their sum.
    softcap: float  #: Bound of the logits; 0 for none.


@dataclass(frozen=True)
class MoeShape:
    """Tokens m, outputs n, inputs k, experts e, experts per token topk, and the routing's options.

    ``routing`` shapes the timed class ``random``: ``uniform`` draws independent logits, ``skewed``
    favours a few experts, ``one`` sends every token to the same ``topk`` experts.
    """

    name: str
    m: int
    n: int
    k: int
    e: int
    topk: int
    renormalize: bool = True
    softcap: float = 0.0
    routing: str = "uniform"

    def describe(self) -> str:
        """For example ``m=128 n=512 k=2048 e=256 topk=8``, with the options that are not usual."""
        text = f"m={self.m} n={self.n} k={self.k} e={self.e} topk={self.topk}"
        if not self.renormalize:
            text += " renormalize=0"
        if self.softcap:
            text += f" softcap={self.softcap:g}"
        if self.routing != "uniform":
            text += f" routing={self.routing}"
        return text
