"""Output storage that the checker controls: guard bands and random poison.

All outputs of one call live in one flat allocation, each between guard bands. Before a call the
whole allocation is filled with random bits. A constant poison could be recognized by a kernel (or
equal a right value); random bits, drawn anew for each call, cannot.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch

GUARD_BYTES = 4096
_ALIGN_BYTES = 1024

_BITS: dict[int, torch.dtype] = {
    1: torch.uint8,
    2: torch.int16,
    4: torch.int32,
    8: torch.int64,
    16: torch.int64,
}


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same storage viewed as integers of the same width, for bitwise comparison."""
    return tensor.view(_BITS[tensor.element_size()])


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same storage in a form that can be compared by its bits."""
    tensor = tensor.detach()
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def extent(tensor: torch.Tensor) -> int:
    """From its first element to behind its last, in elements."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in steps) if tensor.numel() else 0


class GuardedOutputs:
    """One flat allocation that holds every output tensor of a call, with guard bands between.

    Args:
        shapes: Logical (row-major, contiguous) shape of each output.
        dtype: Their common dtype.
        device: ``cpu`` or ``cuda:N``.
    """

    def __init__(self, shapes: Sequence[Sequence[int]], dtype: torch.dtype, device: str) -> None:
        itemsize = torch.empty((), dtype=dtype).element_size()
        guard = GUARD_BYTES // itemsize
        align = _ALIGN_BYTES // itemsize
        offset = guard
        spans: list[tuple[int, int]] = []
        for shape in shapes:
            count = math.prod(shape)
            spans.append((offset, count))
            offset += -(-count // align) * align + guard
        self.flat = torch.empty(offset, dtype=dtype, device=device)
        self.spans = spans
        self.views = [
            self.flat[start : start + count].view(*shape)
            for (start, count), shape in zip(spans, shapes, strict=True)
        ]
        self._outside = self._all_but(spans)

    def _all_but(self, spans: Sequence[tuple[int, int]]) -> torch.Tensor:
        inside = torch.zeros(self.flat.numel(), dtype=torch.bool, device=self.flat.device)
        for start, count in spans:
            inside[start : start + count] = True
        return ~inside

    def beginning(self, outputs: Sequence[torch.Tensor]) -> GuardedOutputs:
        """The same storage for ``outputs`` that begin where these do and are no longer."""
        found = copy.copy(self)
        width = self.flat.element_size()
        found.spans = [
            (start, output.numel() * output.element_size() // width)
            for (start, _), output in zip(self.spans, outputs, strict=True)
        ]
        found.views = [*outputs]
        found._outside = self._all_but(found.spans)
        return found

    def draw_poison(self, seed: int) -> torch.Tensor:
        """Random bits for the whole arena, deterministic in ``seed``, same dtype as the outputs."""
        generator = torch.Generator(device=self.flat.device).manual_seed(seed & (2**63 - 1))
        size = self.flat.numel() * self.flat.element_size() // 4
        noise = torch.randint(
            -(2**31), 2**31, (size,), dtype=torch.int32, device=self.flat.device,
            generator=generator,
        )  # fmt: skip
        return noise.view(self.flat.dtype)

    def fill(self, poison: torch.Tensor) -> None:
        """Overwrite outputs and guard bands with ``poison`` (from :meth:`draw_poison`)."""
        bits(self.flat).copy_(bits(poison))

    def guards_intact(self, poison: torch.Tensor) -> bool:
        """Whether every byte outside the outputs still holds the poison."""
        changed = bits(self.flat) != bits(poison)
        return not bool((changed & self._outside).any())

    def unwritten(self, poison: torch.Tensor) -> list[torch.Tensor]:
        """Per output, a mask of the elements that still hold their poison bits."""
        same = bits(self.flat) == bits(poison)
        return [same[start : start + count] for start, count in self.spans]


#: Its name in problems that were written before.
OutputArena = GuardedOutputs


class MixedArena(GuardedOutputs):
    """An arena of bytes, whose outputs have dtype and strides of tensors ``like`` them, if any."""

    def __init__(self, like: Sequence[torch.Tensor], device: str) -> None:
        sizes = [(extent(tensor) * tensor.element_size(),) for tensor in like]
        super().__init__(sizes, torch.uint8, device)
        self.views = self._views_of(self.flat, like)

    def unwritten(self, poison: torch.Tensor) -> list[torch.Tensor]:
        """Per output, a mask of the elements that still hold their poison bits."""
        return [
            bits(plain(view)) == bits(plain(old))
            for view, old in zip(self.views, self._views_of(poison, self.views), strict=True)
        ]

    def _views_of(self, flat: torch.Tensor, like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [
            flat[start : start + size].view(tensor.dtype).as_strided(tensor.shape, tensor.stride())
            for (start, size), tensor in zip(self.spans, like, strict=True)
        ]


def shares_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors lie in the same storage, or in storages that overlap."""
    if one.device != other.device:
        return False
    spans = []
    for tensor in (one, other):
        storage = tensor.untyped_storage()
        spans.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
    (start, end), (first, last) = spans
    return start < last and first < end


def describe_tensor(value: Any) -> str:
    """What a step returned in place of a tensor, for error messages."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} on {value.device}"
    return type(value).__name__
