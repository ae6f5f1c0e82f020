"""Products of groups of rows with a matrix each, FP8 with a scale for each tensor."""

import torch
import triton
import triton.language as tl


@triton.jit
def grouped(
    a, b, c, offsets, scale, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(2)
    first, end = tl.load(offsets + group), tl.load(offsets + group + 1)
    if first + tl.program_id(0) * BLOCK_M >= end:
        return
    rows = first + tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a_at = a + rows[:, None] * K + depth[None, :]
    b_at = b + group * N * K + columns[None, :] * K + depth[:, None]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, K, BLOCK_K):
        left = tl.load(a_at, mask=rows[:, None] < end, other=0.0)
        total = tl.dot(left, tl.load(b_at), total)
        a_at += BLOCK_K
        b_at += BLOCK_K
    out = c + rows[:, None] * N + columns[None, :]
    tl.store(out, (total * scale).to(tl.float16), mask=rows[:, None] < end)


def main():
    N, K, sizes = 64, 256, (70, 0, 30)
    edges = torch.tensor([0, *torch.tensor(sizes).cumsum(0).tolist()], dtype=torch.int32)
    a = torch.randint(-4, 5, (sum(sizes), K), device="cuda").to(torch.float8_e4m3fn)
    b = torch.randint(-4, 5, (len(sizes), N, K), device="cuda").to(torch.float8_e4m3fn)
    c = torch.empty(sum(sizes), N, device="cuda", dtype=torch.float16)
    grouped[(triton.cdiv(max(sizes), 64), 1, len(sizes))](
        a, b, c, edges.to("cuda"), 0.5, N, K,
        BLOCK_M=64, BLOCK_N=64, BLOCK_K=64, num_warps=4, num_stages=3,
    )  # fmt: skip
    begin = 0
    for group, size in enumerate(sizes):
        rows = slice(begin, begin + size)
        want = (a[rows].float() @ b[group].float().T * 0.5).half()
        torch.testing.assert_close(c[rows], want, rtol=0, atol=0)
        begin += size


if __name__ == "__main__":
    main()
