import os

import torch
import triton
import triton.language as tl

BUG = int(os.environ.get("BUG", "0"))


@triton.jit
def add(x, total, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    old = tl.load(total + at, mask=at < n)
    tl.store(total + at, old + tl.load(x + at, mask=at < n), mask=at < n)


def main():
    n = 1000
    x, total = torch.zeros(n, device="cuda"), torch.zeros(n, device="cuda")
    grid = (triton.cdiv(n, 256),)
    add[grid](x, total, n, BLOCK=256)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        if BUG != 2:
            total.zero_()
        add[grid](x, total, n, BLOCK=256)
    loader = torch.cuda.Stream()
    for value in (1, 2):
        loader.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(loader):
            x.fill_(value)
        if BUG != 1:
            torch.cuda.current_stream().wait_stream(loader)
        graph.replay()
    torch.testing.assert_close(total, torch.full_like(total, 2))


if __name__ == "__main__":
    main()
