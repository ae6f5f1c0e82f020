// A warpgroup's reads of its own shared memory, released to the other CTA at the default scope
// (cta): formal for the reads of the arriving warp, an error for those of the three other warps.
#include <cuda_runtime.h>

#include <cstdint>
__global__ void __cluster_dims__(2) pair(float* out) {
  __shared__ alignas(128) uint32_t tile[1024];  // A: 64 x 16, B: 8 x 16 of bf16, no swizzle
  __shared__ uint64_t bar, full;
  uint32_t rank, t = __cvta_generic_to_shared(tile), b = __cvta_generic_to_shared(&bar);
  uint32_t f = __cvta_generic_to_shared(&full);
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  for (int i = threadIdx.x; i < 1024; i += 128) tile[i] = 0x3f803f80;
  if (threadIdx.x == 0)
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], 1; mbarrier.init.shared::cta.b64 [%1], 1;\n"
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%1], 16;" ::"r"(b),
        "r"(f)
        : "memory");
  asm volatile(
      "fence.mbarrier_init.release.cluster; fence.proxy.async;\n"
      "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::
          : "memory");
  float d[4] = {};
  if (rank == 1) {
    uint64_t k = 8ull << 16 | 16ull << 32, a_desc = k | t >> 4, b_desc = k | (t + 2048) >> 4;
    asm volatile(
        "wgmma.fence.sync.aligned;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, "
        "0;\n"
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "l"(a_desc), "l"(b_desc)
        : "memory");
    if (threadIdx.x == 0)
      asm volatile(
          "{.reg .b32 r; mapa.shared::cluster.u32 r, %0, 0;\n"
          "mbarrier.arrive.shared::cluster.b64 _, [r];}" ::"r"(b)
          : "memory");
    asm volatile(
        "{.reg .pred p;\nL: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\n@!p bra L;}" ::
            "r"(f)
        : "memory");
  } else if (threadIdx.x == 0) {
    asm volatile(
        "{.reg .pred p; .reg .b32 r, q;\nL: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], "
        "0;\n@!p bra L;\n"
        "mapa.shared::cluster.u32 r, %1, 1; mapa.shared::cluster.u32 q, %2, 1; add.u32 r, r, "
        "2048;\n"
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [r], [%1], 16, "
        "[q];}" ::"r"(b),
        "r"(t), "r"(f)
        : "memory");
  }
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
  out[rank * 128 + threadIdx.x] = d[0];
}
int main() {
  float* d;
  cudaMalloc(&d, 1024);
  pair<<<2, 128>>>(d);
  return cudaDeviceSynchronize();
}
