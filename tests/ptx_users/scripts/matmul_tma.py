"""c = a @ bᵀ with tensor descriptors made on the host."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def matmul_tma(
    a, b, c, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):  # fmt: skip
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        total = tl.dot(a.load([row, k]), b.load([column, k]).T, total)
    c.store([row, column], total.to(tl.float16))


def main():
    M, N, K = 100, 128, 256
    a = torch.randint(-4, 5, (M, K), device="cuda").half()
    b = torch.randint(-4, 5, (N, K), device="cuda").half()
    c = torch.empty(M, N, device="cuda", dtype=torch.float16)
    describe = TensorDescriptor.from_tensor
    matmul_tma[(triton.cdiv(M, 64), triton.cdiv(N, 64))](
        describe(a, [64, 64]), describe(b, [64, 64]), describe(c, [64, 64]),
        K, BLOCK_M=64, BLOCK_N=64, BLOCK_K=64, num_warps=4, num_stages=3,
    )  # fmt: skip
    torch.testing.assert_close(c, (a.float() @ b.float().T).half(), rtol=0, atol=0)


if __name__ == "__main__":
    main()
