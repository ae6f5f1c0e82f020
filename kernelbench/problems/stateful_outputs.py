"""Output storage for problems whose outputs differ in type, or whose calls change their inputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelbench.project.arena import GUARD_BYTES, GuardedOutputs, bits, extent

_ALIGN_BYTES = 1024


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same storage in a form that can be compared by its bits."""
    tensor = tensor.detach()
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one shape and type are equal in every bit."""
    return bool(torch.equal(bits(plain(a)), bits(plain(b))))


class StatefulOutputs(GuardedOutputs):
    """Outputs of any types and strides with guard bands between, and the state to put back.

    Args:
        outputs: As the problem made them; :attr:`views` have their shapes, strides and types.
        state: Pairs of a tensor that a call changes and the values that it has before.
        device: Where there are no outputs.

    Attributes:
        returned: Whether the last call returned any of the outputs.
    """

    def __init__(
        self,
        outputs: Sequence[torch.Tensor],
        state: Sequence[tuple[torch.Tensor, torch.Tensor]],
        device: str,
    ) -> None:
        self.returned = True
        self._state = state
        self._like = outputs
        self._offsets: list[int] = []
        offset = GUARD_BYTES if outputs else 0
        for tensor in outputs:
            self._offsets.append(offset)
            offset += -(-_extent_bytes(tensor) // _ALIGN_BYTES) * _ALIGN_BYTES + GUARD_BYTES
        where = outputs[0].device if outputs else torch.device(device)
        self.flat = torch.zeros(offset, dtype=torch.uint8, device=where)
        self.views = self._views_of(self.flat)
        sizes = map(_extent_bytes, outputs)
        self._outside = self._all_but([*zip(self._offsets, sizes, strict=True)])

    def fill(self, poison: torch.Tensor) -> None:
        """Poison outputs and guard bands, and put the state back."""
        super().fill(poison)
        for live, pristine in self._state:
            plain(live).copy_(plain(pristine))

    def unwritten(self, poison: torch.Tensor) -> list[torch.Tensor]:
        """Per output, a mask of the elements that still hold their poison bits.

        Empty where a step returned tensors of its own: nobody asked it to write these.
        """
        if not self.returned:
            return []
        return [
            bits(plain(view)) == bits(plain(old))
            for view, old in zip(self.views, self._views_of(poison), strict=True)
        ]

    def _views_of(self, flat: torch.Tensor) -> list[torch.Tensor]:
        return [
            flat[start : start + _extent_bytes(tensor)]
            .view(tensor.dtype)
            .as_strided(tensor.shape, tensor.stride())
            for start, tensor in zip(self._offsets, self._like, strict=True)
        ]


def _extent_bytes(tensor: torch.Tensor) -> int:
    """Bytes from a tensor's first element to its last."""
    return extent(tensor) * tensor.element_size()
