// tcgen05.alloc.cta_group::2 is collective; the MMA behind it may use both CTAs' columns.
#include <cuda_runtime.h>

#include <cstdint>
__global__ void __cluster_dims__(2) pair() {
  extern __shared__ __align__(
      1024) char tile[];  // A: 128 rows of 128 bytes, B: 64 rows, no swizzle
  __shared__ uint64_t bar;
  __shared__ uint32_t column;
  uint32_t rank, s = __cvta_generic_to_shared(tile), b = __cvta_generic_to_shared(&bar);
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  for (int i = threadIdx.x; i < 6144; i += 128) reinterpret_cast<uint32_t*>(tile)[i] = 0x3f803f80;
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(b) : "memory");
  asm volatile(
      "fence.mbarrier_init.release.cluster; fence.proxy.async;\n"
      "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::
          : "memory");
  if (threadIdx.x < 32) {
    asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], 128;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(&column))
                 : "memory");
    if (rank == 0 && threadIdx.x == 0) {
      uint64_t k =
          (8ull << 16) | (64ull << 32) | (1ull << 46);  // core matrices 128 and 1024 bytes apart
      uint64_t a_desc = k | (s >> 4), b_desc = k | ((s + 16384) >> 4);
      uint32_t kind = 1u << 4 | 1u << 7 | 1u << 10 | 128u >> 3 << 17 | 256u >> 4 << 24;
      asm volatile(
          "{.reg .pred p; setp.ne.b32 p, 0, 0;\n"
          "tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, p;\n"
          "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster."
          "b64 [%4], %5;}" ::"r"(0),
          "l"(a_desc), "l"(b_desc), "r"(kind), "r"(b), "h"((int16_t)3)
          : "memory");
    }
  }
  asm volatile(
      "{.reg .pred q;\nL: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 q, [%0], 0;\n"
      "@!q bra L;}\n tcgen05.fence::after_thread_sync;" ::"r"(b)
      : "memory");
  asm volatile(
      "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
      "tcgen05.fence::after_thread_sync;" ::
          : "memory");
  if (threadIdx.x < 32) asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 0, 128;");
}
int main() {
  cudaFuncSetAttribute(pair, cudaFuncAttributeMaxDynamicSharedMemorySize, 24576);
  pair<<<2, 128, 24576>>>();
  return cudaDeviceSynchronize();
}
