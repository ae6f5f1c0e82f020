"""c = a + b."""

import torch
import triton
import triton.language as tl


@triton.jit
def add(a, b, c, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(c + at, tl.load(a + at, mask=inside) + tl.load(b + at, mask=inside), mask=inside)


def main():
    n = 1000
    a, b = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
    c = torch.empty_like(a)
    add[(triton.cdiv(n, 256),)](a, b, c, n, BLOCK=256)
    torch.testing.assert_close(c, a + b, rtol=0, atol=0)


if __name__ == "__main__":
    main()
