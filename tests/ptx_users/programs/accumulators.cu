// One product of 64x8 by wgmma, whose accumulators are read behind the wait for it.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "check.h"

namespace {

constexpr int kRows = 64, kColumns = 8, kDepth = 16;

__device__ uint64_t tile(const void* at, uint32_t leading, uint32_t stride) {
  const uint64_t address = static_cast<uint32_t>(__cvta_generic_to_shared(at));
  return address >> 4 | static_cast<uint64_t>(leading >> 4) << 16 |
         static_cast<uint64_t>(stride >> 4) << 32;
}

__global__ void product(float* out) {
  // Matrices of eight rows of 16 bytes, one behind the other, along k and then along the rows.
  __shared__ alignas(128) __half a[kDepth / 8][kRows * 8], b[kDepth / 8][kColumns * 8];
  for (int at = threadIdx.x; at < kRows * kDepth; at += 128) a[0][at] = __half(1.0f);
  b[0][threadIdx.x] = __half(2.0f);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  float d[4] = {};
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(tile(a, kRows * 16, 128)), "l"(tile(b, kColumns * 16, 128))
      : "memory");
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
  asm volatile("// end" ::: "memory");
}

}  // namespace

int main() {
  float *out, host[128];
  CHECK(cudaMalloc(&out, sizeof host));
  product<<<1, 128>>>(out);
  CHECK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
  for (float each : host) {
    if (each != 4 * 2 * kDepth) return 1;
  }
  return 0;
}
