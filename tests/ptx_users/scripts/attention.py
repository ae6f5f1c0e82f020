"""Flash attention, forward: each program holds a block of queries."""

import torch
import triton
import triton.language as tl


@triton.jit
def attention(
    q, k, v, out, scale, LENGTH,
    WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    base = tl.program_id(1) * LENGTH * WIDTH
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    wide, keys = tl.arange(0, WIDTH), tl.arange(0, BLOCK_N)
    queries = tl.load(q + base + rows[:, None] * WIDTH + wide[None, :])
    k_at = k + base + keys[None, :] * WIDTH + wide[:, None]
    v_at = v + base + keys[:, None] * WIDTH + wide[None, :]
    most = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    sums = tl.zeros((BLOCK_M,), tl.float32)
    total = tl.zeros((BLOCK_M, WIDTH), tl.float32)
    for _ in range(0, LENGTH, BLOCK_N):
        scores = tl.dot(queries, tl.load(k_at)) * scale
        higher = tl.maximum(most, tl.max(scores, axis=1))
        powers = tl.exp2(scores - higher[:, None])
        kept = tl.exp2(most - higher)
        sums = sums * kept + tl.sum(powers, axis=1)
        total = tl.dot(powers.to(tl.float16), tl.load(v_at), total * kept[:, None])
        most = higher
        k_at += BLOCK_N * WIDTH
        v_at += BLOCK_N * WIDTH
    result = (total / sums[:, None]).to(tl.float16)
    tl.store(out + base + rows[:, None] * WIDTH + wide[None, :], result)


def main():
    heads, length, width = 2, 128, 64
    q, k, v = (
        torch.randn(heads, length, width, device="cuda", dtype=torch.float16) for _ in range(3)
    )
    out = torch.empty_like(q)
    # exp2 of scores times log2(e).
    scale = width**-0.5 * 1.44269504
    attention[(length // 64, heads)](
        q, k, v, out, scale, length, WIDTH=width, BLOCK_M=64, BLOCK_N=64, num_warps=4, num_stages=2
    )
    want = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float())
    torch.testing.assert_close(out, want.half(), rtol=1e-2, atol=1e-2)


if __name__ == "__main__":
    main()
