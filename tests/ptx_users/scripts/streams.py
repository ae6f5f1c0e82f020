import os

import torch
import triton
import triton.language as tl

BUG = int(os.environ.get("BUG", "0"))


@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def main():
    n = 1000
    x = torch.randn(n, device="cuda")
    y, z = torch.empty_like(x), torch.empty_like(x)
    grid = (triton.cdiv(n, 256),)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        double[grid](x, y, n, BLOCK=256)
        done = torch.cuda.Event()
        if BUG != 2:
            done.record()
    if BUG == 2:
        done.record()
    if BUG != 1:
        torch.cuda.current_stream().wait_event(done)
    double[grid](y, z, n, BLOCK=256)
    torch.testing.assert_close(z, 4 * x)


if __name__ == "__main__":
    main()
