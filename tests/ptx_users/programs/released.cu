// Right versions, written small, of what releases of packages have in 2026: rounds of a cluster,
// rows behind a dependency, sums of lanes, registers of a warpgroup, a tile that one lane stores.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include "check.h"

namespace {

namespace cg = cooperative_groups;

constexpr int kThreads = 128, kRounds = 3, kShort = 16, kTile = 64;

__device__ bool elected() {
  unsigned is;
  asm volatile("{ .reg .pred p; elect.sync _|p, -1; selp.u32 %0, 1, 0, p; }" : "=r"(is));
  return is != 0;
}

// Each round counts for the next: who resets a count comes behind all who read it.
__global__ void __cluster_dims__(2) rounds(int* out) {
  __shared__ int counts[2];
  const auto cluster = cg::this_cluster();
  if (threadIdx.x == 0) counts[0] = counts[1] = 0;
  cluster.sync();
  for (int round = 0; round < kRounds; ++round) {
    const int mine = round & 1;
    atomicAdd(&counts[mine], 1);
    __syncthreads();
    int found = counts[mine];  // before the arrival
    cluster.barrier_arrive();
    out[blockIdx.x * kThreads + threadIdx.x] = found;
    cluster.barrier_wait();
    if (threadIdx.x == 0) counts[mine] = 0;
    __syncthreads();
  }
}

__global__ void logits(float* row) {
  cudaTriggerProgrammaticLaunchCompletion();
  row[threadIdx.x] = static_cast<float>(threadIdx.x);
}
// Rows of either kind come behind what the kernel ahead has written.
__global__ void largest(const float* row, float* out, int length) {
  cudaGridDependencySynchronize();  // both kinds
  if (length <= kShort) {
    if (static_cast<int>(threadIdx.x) < length) out[threadIdx.x] = row[threadIdx.x];
    return;
  }
  cudaGridDependencySynchronize();
  if (threadIdx.x == 0) out[0] = row[length - 1];
}

// A lane looks at the sums of others.
__global__ void search(const int* lengths, int* out) {
  __shared__ int sums[32];
  int sum = lengths[threadIdx.x];
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(~0u, sum, step);
    sum += threadIdx.x >= step ? other : 0;
  }
  sums[threadIdx.x] = sum;
  const int total = __shfl_sync(~0u, sum, 31);
  __syncwarp();  // before the search
  int at = 0;
  while (at < 31 && sums[at] * 32 <= total * static_cast<int>(threadIdx.x)) ++at;
  out[threadIdx.x] = at;
}

// A warpgroup gives registers back, and one of its lanes works on.
__global__ void __launch_bounds__(2 * kThreads) registers(int* out) {
  if (threadIdx.x >= kThreads) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");  // all of them
    if (threadIdx.x >= kThreads + 32 || !elected()) return;
    asm volatile("// by one");
    out[kThreads] = 1;
    return;
  }
  out[threadIdx.x] = 1;
}

// One lane stores the tile that its warp has filled, whichever is elected.
__global__ void tile(int* out) {
  __shared__ alignas(128) int words[kTile];
  words[threadIdx.x] = threadIdx.x;
  words[threadIdx.x + 32] = threadIdx.x + 32;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncwarp();
  if (elected()) {
    const int* from = words;  // the tile's beginning
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(out),
                 "r"(static_cast<unsigned>(__cvta_generic_to_shared(from))), "n"(kTile * 2)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}

template <typename T>
T* zeros(int count) {
  T* made = nullptr;
  cudaMalloc(&made, count * sizeof(T));
  cudaMemset(made, 0, count * sizeof(T));
  return made;
}

}  // namespace

int main() {
  int *out = zeros<int>(4 * kThreads), *lengths = zeros<int>(32);
  float *row = zeros<float>(kThreads), *found = zeros<float>(kThreads);
  rounds<<<2, kThreads>>>(out);
  CHECK(cudaDeviceSynchronize());
  logits<<<1, kThreads>>>(row);
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = 1;
  config.blockDim = kThreads;
  config.attrs = &attribute;
  config.numAttrs = 1;
  CHECK(cudaLaunchKernelEx(&config, largest, static_cast<const float*>(row), found, kShort));
  CHECK(cudaDeviceSynchronize());
  search<<<1, 32>>>(lengths, out);
  registers<<<1, 2 * kThreads>>>(out);
  tile<<<1, 32>>>(out);
  CHECK(cudaDeviceSynchronize());
  return 0;
}
