// In the manner of CUTLASS's pipelines for Hopper: the first thread of a warp arms a stage, the
// elected one loads it, and every lane of a warp stores the tile.
#include <cstdint>
#include <vector>

#include "check.h"

namespace {

constexpr int kThreads = 64, kTile = 256, kStages = 2, kTiles = 6, kBytes = kTile * sizeof(int);

__device__ uint32_t address(const void* of) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(of));
}

__device__ bool elected() {
  uint32_t is;
  asm volatile("{ .reg .pred p; elect.sync _|p, -1; selp.u32 %0, 1, 0, p; }" : "=r"(is));
  return is != 0;
}

__device__ void wait(uint32_t bar, int parity) {
  asm volatile(
      "{ .reg .pred p;\nL: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra L; }" ::
          "r"(bar),
      "r"(parity)
      : "memory");
}

__global__ void doubled(const int* in, int* out) {
  __shared__ alignas(128) int stages[kStages][kTile], tile[kTile];
  __shared__ alignas(8) uint64_t full[kStages];
  const bool leads = threadIdx.x == 0, loads = threadIdx.x < 32 && elected();
  if (leads) {
    for (uint64_t& bar : full) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&bar)) : "memory");
    }
    asm volatile("fence.proxy.async;" ::: "memory");
  }
  __syncthreads();
  for (int at = 0; at < kTiles; ++at) {
    const int stage = at % kStages;
    const uint32_t bar = address(&full[stage]);
    if (loads) {
      if (leads) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar),
                     "n"(kBytes)
                     : "memory");
      }
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
          "[%3];" ::"r"(address(stages[stage])),
          "l"(in + at * kTile), "n"(kBytes), "r"(bar)
          : "memory");
    }
    wait(bar, at / kStages % 2);
    for (int i = threadIdx.x; i < kTile; i += kThreads) tile[i] = 2 * stages[stage][i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x < 32) {  // one store, by all lanes
      asm volatile(
          "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(out + at * kTile),
          "r"(address(tile)), "n"(kBytes)
          : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
    __syncthreads();
  }
}

}  // namespace

int main() {
  std::vector<int> host(kTiles * kTile);
  for (int at = 0; at < kTiles * kTile; ++at) host[at] = at;
  int *in, *out;
  CHECK(cudaMalloc(&in, kTiles * kBytes));
  CHECK(cudaMalloc(&out, kTiles * kBytes));
  CHECK(cudaMemcpy(in, host.data(), kTiles * kBytes, cudaMemcpyHostToDevice));
  doubled<<<1, kThreads>>>(in, out);
  CHECK(cudaMemcpy(host.data(), out, kTiles * kBytes, cudaMemcpyDeviceToHost));
  for (int at = 0; at < kTiles * kTile; ++at) {
    if (host[at] != 2 * at) {
      std::printf("wrong at %d\n", at);
      return 1;
    }
  }
  return 0;
}
