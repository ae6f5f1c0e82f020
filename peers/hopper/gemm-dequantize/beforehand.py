"""Dequantized operands that are made before a timed call, for peers that take no NVFP4."""

import torch
from dequantize import dequantize

_LAST = 8  # sets of tensors whose memory is kept


class Operands:
    """The fp16 operands of sets of tensors, by address; anew with every :meth:`dequantize`."""

    def __init__(self):
        self._kept = {}

    def dequantize(self, data):
        """Dequantize all groups of a call."""
        kept = keep(self._kept, data, lambda: _allocate(data))
        for (a, b, _), blocked, rows_a, rows_b in zip(data[0], data[2], *kept, strict=True):
            dequantize(a, blocked[0], rows_a)
            dequantize(b, blocked[1], rows_b)

    def of(self, data):
        """``(operands of A, operands of B)``: lists of fp16 ``[m, k]`` and ``[n, k]``, by group.

        Where all groups have one N and K they are slices of one tensor, B's ``[groups, n, k]``.
        """
        return self._kept[key_of(data)]


def key_of(data):
    """What tells a call's tensors from another's: addresses and extents."""
    return (*(tensor.data_ptr() for group in data[0] for tensor in group), *map(tuple, data[3]))


def keep(kept, data, make):
    """What ``kept`` has for a call, or what ``make()`` gives, which it has from then on."""
    key = key_of(data)
    if key not in kept:
        while len(kept) >= _LAST:
            del kept[next(iter(kept))]
        kept[key] = make()
    return kept[key]


def _allocate(data):
    device = data[0][0][1].device
    pairs = []
    for rows in (0, 1):
        sizes = [(size[rows], size[2]) for size in data[3]]
        memory = torch.empty(sum(m * k for m, k in sizes), dtype=torch.float16, device=device)
        parts = memory.split([m * k for m, k in sizes])
        pairs.append([part.view(size) for part, size in zip(parts, sizes, strict=True)])
    return pairs
