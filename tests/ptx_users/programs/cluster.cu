// Sums over clusters of 2×2 CTAs through distributed shared memory, launched with
// cudaLaunchKernelEx.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

constexpr int kBlock = 64;

__global__ void cluster_sums(const float* x, float* sums) {
  __shared__ float part;
  const cg::cluster_group cluster = cg::this_cluster();
  const dim3 at = cluster.block_index();
  if (threadIdx.x == 0) part = 0;
  __syncthreads();
  atomicAdd(&part, x[(blockIdx.y * gridDim.x + blockIdx.x) * kBlock + threadIdx.x]);
  cluster.sync();
  if (cluster.thread_rank() == 0) {
    float sum = 0;
    for (unsigned rank = 0; rank < cluster.num_blocks(); ++rank) {
      sum += *cluster.map_shared_rank(&part, rank);
    }
    sums[blockIdx.y / 2 * (gridDim.x / 2) + blockIdx.x / 2] = at.x == 0 && at.y == 0 ? sum : -1;
  }
  cluster.sync();
}

int main() {
  constexpr int kX = 4, kY = 2, kCount = kX * kY * kBlock;
  static float host[kCount];
  float want[2] = {0, 0};
  for (int i = 0; i < kCount; ++i) {
    host[i] = float(i % 7);
    want[i / kBlock % kX / 2] += host[i];
  }
  float *x, *sums;
  cudaMalloc(&x, sizeof host);
  cudaMalloc(&sums, sizeof want);
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = 2;
  attribute.val.clusterDim.y = 2;
  attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(kX, kY);
  config.blockDim = dim3(kBlock);
  config.attrs = &attribute;
  config.numAttrs = 1;
  const auto* in = static_cast<const float*>(x);
  if (cudaLaunchKernelEx(&config, cluster_sums, in, sums) != cudaSuccess) return 1;
  float got[2];
  cudaMemcpy(got, sums, sizeof got, cudaMemcpyDeviceToHost);
  return got[0] == want[0] && got[1] == want[1] ? 0 : 2;
}
