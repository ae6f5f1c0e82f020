"""c = a @ bᵀ with pointers; the K loop is pipelined by the compiler."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul(
    a, b, c, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a_at = a + rows[:, None] * K + depth[None, :]
    b_at = b + columns[None, :] * K + depth[:, None]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, K, BLOCK_K):
        left = tl.load(a_at, mask=rows[:, None] < M, other=0.0)
        right = tl.load(b_at, mask=columns[None, :] < N, other=0.0)
        total = tl.dot(left, right, total)
        a_at += BLOCK_K
        b_at += BLOCK_K
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16), mask=inside)


def main():
    M, N, K = 100, 64, 256
    # Small whole numbers: every sum is exact.
    a = torch.randint(-4, 5, (M, K), device="cuda").half()
    b = torch.randint(-4, 5, (N, K), device="cuda").half()
    c = torch.empty(M, N, device="cuda", dtype=torch.float16)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
    matmul[grid](a, b, c, M, N, K, BLOCK_M=64, BLOCK_N=64, BLOCK_K=64, num_warps=4, num_stages=3)
    torch.testing.assert_close(c, (a.float() @ b.float().T).half(), rtol=0, atol=0)


if __name__ == "__main__":
    main()
