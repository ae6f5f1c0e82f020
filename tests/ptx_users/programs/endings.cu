// How kernels and main end: a CTA whose memory its peer still reads, a bulk reduction, and a flag
// of two values of which either may be seen. Right as it stands.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include "check.h"

namespace cg = cooperative_groups;

namespace {

constexpr int kThreads = 32;

__global__ void __cluster_dims__(2, 1, 1) exchange(int* out) {
  __shared__ int mine[kThreads];
  const cg::cluster_group cluster = cg::this_cluster();
  mine[threadIdx.x] = 100 * blockIdx.x + threadIdx.x;
  cluster.sync();
  out[blockIdx.x * kThreads + threadIdx.x] =
      cluster.map_shared_rank(mine, cluster.block_rank() ^ 1)[threadIdx.x];
  cluster.sync();  // at the end
}

__global__ void add(float* sums) {
  __shared__ alignas(16) float part[kThreads];
  part[threadIdx.x] = threadIdx.x;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x > 0) return;
  const auto from = static_cast<unsigned>(__cvta_generic_to_shared(part));
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;\n"
      "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::"l"(sums),
      "r"(from), "n"(sizeof part)
      : "memory");
}

__device__ unsigned flag;

__global__ void look(int* words, int* seen) {
  if (blockIdx.x == 0) {
    words[0] = 3;
    asm volatile("st.release.gpu.u32 [%0], 1;" ::"l"(&flag) : "memory");
    words[1] = 5;
    asm volatile("st.release.gpu.u32 [%0], 2;" ::"l"(&flag) : "memory");
    return;
  }
  unsigned now;
  do {
    asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(now) : "l"(&flag) : "memory");
  } while (now == 0);
  *seen = now == 1 ? words[0] + 2 : words[1];
}

}  // namespace

int main() {
  int *out, *words, *seen, got[2 * kThreads], last;
  float *sums, added[kThreads];
  CHECK(cudaMalloc(&out, sizeof got));
  CHECK(cudaMalloc(&sums, sizeof added));
  CHECK(cudaMalloc(&words, 2 * sizeof(int)));
  CHECK(cudaMalloc(&seen, sizeof(int)));
  CHECK(cudaMemset(sums, 0, sizeof added));
  exchange<<<2, kThreads>>>(out);
  add<<<2, kThreads>>>(sums);
  look<<<2, 1>>>(words, seen);
  CHECK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(added, sums, sizeof added, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(&last, seen, sizeof last, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 2 * kThreads; ++i) {
    if (got[i] != 100 * (1 - i / kThreads) + i % kThreads) return 1;
  }
  for (int i = 0; i < kThreads; ++i) {
    if (added[i] != 2 * i) return 2;
  }
  return last == 5 ? 0 : 3;
}
