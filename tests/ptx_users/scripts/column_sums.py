"""The sums of a matrix's columns; each program takes some rows. It has a race."""

import torch
import triton
import triton.language as tl


@triton.jit
def column_sums(x, sums, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(ROWS):
        total += tl.load(x + (tl.program_id(0) * ROWS + row) * columns + at)
    tl.store(sums + at, tl.load(sums + at) + total)


def main():
    x = torch.randint(-4, 5, (64, 128), device="cuda").float()
    sums = torch.zeros(128, device="cuda")
    column_sums[(4,)](x, sums, 128, ROWS=16, BLOCK=128)
    torch.testing.assert_close(sums, x.sum(dim=0), rtol=0, atol=0)


if __name__ == "__main__":
    main()
