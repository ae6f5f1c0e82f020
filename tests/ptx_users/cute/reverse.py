"""Reverses each block of 128 numbers through shared memory."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

BLOCK = 128


@cute.kernel
def reverse_kernel(a: cute.Tensor, c: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    smem = cutlass.utils.SmemAllocator()
    buffer = smem.allocate_tensor(cutlass.Float32, cute.make_layout(BLOCK), 16)
    buffer[tidx] = a[bidx * BLOCK + tidx]
    cute.arch.sync_threads()
    c[bidx * BLOCK + tidx] = buffer[BLOCK - 1 - tidx]


@cute.jit
def reverse(a: cute.Tensor, c: cute.Tensor):
    reverse_kernel(a, c).launch(grid=[cute.size(a) // BLOCK, 1, 1], block=[BLOCK, 1, 1])


def main():
    a = torch.randn(1024, device="cuda")
    c = torch.zeros(1024, device="cuda")
    reverse(from_dlpack(a), from_dlpack(c))
    torch.cuda.synchronize()
    torch.testing.assert_close(c, a.view(-1, BLOCK).flip(1).reshape(-1))


main()
