"""Scales a vector and back, with numbers and a stream as arguments; asks what the GPU has."""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

THREADS = 64


@cute.kernel
def scale_kernel(a: cute.Tensor, factor: cutlass.Float32, count: cutlass.Int32):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    at = bidx * THREADS + tidx
    if at < count:
        a[at] = a[at] * factor


@cute.jit
def scale(a: cute.Tensor, factor: cutlass.Float32, count: cutlass.Int32, stream: cuda.CUstream):
    blocks = (count + THREADS - 1) // THREADS
    scale_kernel(a, factor, count).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1), stream=stream)


def main():
    a = torch.arange(300, dtype=torch.float32, device="cuda")
    before = a.clone()
    stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    given = from_dlpack(a).mark_layout_dynamic()
    compiled = cute.compile(scale, given, 2.0, 300, stream)
    compiled(given, 2.0, 300, stream)
    compiled(given, 0.5, 300, stream)
    torch.cuda.synchronize()
    assert torch.equal(a, before)
    assert cutlass.utils.HardwareInfo().get_max_active_clusters(2) == 2


main()
