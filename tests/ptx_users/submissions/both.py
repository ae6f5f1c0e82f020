"""A script with a Triton kernel and a torch extension."""

from pathlib import Path

import torch
import triton
import triton.language as tl
from torch.utils.cpp_extension import load

squares = load(name="squares", sources=[str(Path(__file__).parent / "square.cu")])


@triton.jit
def add_kernel(x, y, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(out + at, tl.load(x + at, inside) + tl.load(y + at, inside), inside)


def custom_kernel(data):
    """The squared norm of the sum of two vectors."""
    x, y = data
    total = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, total, x.numel(), BLOCK=256)
    return squares.square_sum(total)


if __name__ == "__main__":
    x, y = (torch.randint(-3, 4, (700,), device="cuda").float() for _ in range(2))
    torch.testing.assert_close(custom_kernel((x, y)), ((x + y) ** 2).sum().reshape(1))
