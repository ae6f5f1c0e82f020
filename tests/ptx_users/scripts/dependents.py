import os

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

BUG = int(os.environ.get("BUG", "0"))


@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    gdc_wait()
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    gdc_launch_dependents()
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def add(y, b, z, n, BLOCK: tl.constexpr, BUG: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bias = tl.load(b + at, mask=at < n)  # nobody writes it: may be read early
    if BUG == 1:
        early = tl.load(y + at, mask=at < n)
        gdc_wait()
        tl.store(z + at, early + bias, mask=at < n)
    elif BUG == 2:
        tl.store(z + at, tl.load(y + at, mask=at < n) + bias, mask=at < n)
    else:
        gdc_wait()
        tl.store(z + at, tl.load(y + at, mask=at < n) + bias, mask=at < n)


def main():
    n = 1000
    x, b = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
    y, z = torch.empty_like(x), torch.empty_like(x)
    grid = (triton.cdiv(n, 256),)
    scale[grid](x, y, n, BLOCK=256, launch_pdl=True)
    if BUG == 3:
        y += 1  # a kernel of torch between: the next one waits for it
        y -= 1
    add[grid](y, b, z, n, BLOCK=256, BUG=2 if BUG == 3 else BUG, launch_pdl=True)
    torch.testing.assert_close(z, 2 * x + b)


if __name__ == "__main__":
    main()
