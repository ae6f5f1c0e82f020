"""Output storage for problems whose outputs differ in type, or whose calls change their inputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelbench.project.arena import MixedArena, bits, plain


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one shape and type are equal in every bit."""
    return bool(torch.equal(bits(plain(a)), bits(plain(b))))


class StatefulOutputs(MixedArena):
    """Outputs of any types and strides with guard bands between, and the state to put back.

    Args:
        outputs: As the problem made them; :attr:`views` have their shapes, strides and types.
        state: Pairs of a tensor that a call changes and the values that it has before.
        device: Where there are no outputs.
    """

    def __init__(
        self,
        outputs: Sequence[torch.Tensor],
        state: Sequence[tuple[torch.Tensor, torch.Tensor]],
        device: str,
    ) -> None:
        super().__init__(outputs, str(outputs[0].device) if outputs else device)
        self.flat.zero_()
        self.returned = True  #: Whether the last call returned any of the outputs.
        self._state = state

    def fill(self, poison: torch.Tensor) -> None:
        """Poison outputs and guard bands, and put the state back."""
        super().fill(poison)
        for live, pristine in self._state:
            plain(live).copy_(plain(pristine))

    def unwritten(self, poison: torch.Tensor) -> list[torch.Tensor]:
        """As for any arena; empty where a step returned tensors of its own.

        Nobody asked it to write these.
        """
        return super().unwritten(poison) if self.returned else []
