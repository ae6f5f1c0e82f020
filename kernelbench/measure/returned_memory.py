"""Stale results where a step returns tensors of its own, which no arena holds.

What a step allocates is memory that was freed before, and may hold an older right answer: it is
filled with random bits first. And memory that a step returns twice is a result that it overwrites.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelbench.project.arena import bits, shares_memory

#: A step may allocate other tensors before its outputs.
_BLOCKS = 3


def poison_free_memory(like: Sequence[torch.Tensor], seed: int) -> None:
    """Fill memory of the size of these outputs with random bits, and free it.

    Both of torch's allocators hand out a block that was just freed to the next who asks for its
    size, as far as they still have it: large blocks of a CPU go back to the system, which clears
    them.
    """
    blocks = []
    for index, tensor in enumerate([*like] * _BLOCKS):
        generator = torch.Generator(device=tensor.device).manual_seed((seed + index) & (2**63 - 1))
        block = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        flat = bits(block).reshape(-1).view(torch.uint8)
        flat.random_(0, 256, generator=generator)
        blocks.append(block)


class ReturnedMemory:
    """Outputs of earlier calls, kept so that no later call can be given their memory."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, torch.Tensor]] = []

    def fault(self, outputs: Sequence[torch.Tensor], what: str) -> str:
        """Why these outputs are not of a memory of their own, in one line; empty if they are."""
        for index, output in enumerate(outputs):
            for earlier, kept in self._kept:
                if output.numel() and shares_memory(output, kept):
                    return (
                        f"output {index} lies in the memory that the {earlier} returned: "
                        "it overwrites a result that its caller may still hold"
                    )
        self._kept += [(what, output) for output in outputs]
        return ""
