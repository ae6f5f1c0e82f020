"""c = a @ bᵀ with as many programs as SMs, each of which takes one tile after another."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def matmul_persistent(
    a, b, c, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SMS: tl.constexpr,
):  # fmt: skip
    across = tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BLOCK_M) * across, SMS, flatten=True):
        row, column = tile // across * BLOCK_M, tile % across * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            total = tl.dot(a.load([row, k]), b.load([column, k]).T, total)
        c.store([row, column], total.to(tl.float16))


def main():
    M, N, K = 192, 128, 192
    a = torch.randint(-4, 5, (M, K), device="cuda").half()
    b = torch.randint(-4, 5, (N, K), device="cuda").half()
    c = torch.empty(M, N, device="cuda", dtype=torch.float16)
    sms = torch.cuda.get_device_properties("cuda").multi_processor_count
    describe = TensorDescriptor.from_tensor
    matmul_persistent[(min(sms, 6),)](
        describe(a, [64, 64]), describe(b, [64, 64]), describe(c, [64, 64]), M, N, K,
        BLOCK_M=64, BLOCK_N=64, BLOCK_K=64, SMS=min(sms, 6), num_warps=4, num_stages=3,
    )  # fmt: skip
    torch.testing.assert_close(c, (a.float() @ b.float().T).half(), rtol=0, atol=0)


if __name__ == "__main__":
    main()
