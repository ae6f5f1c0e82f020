// Layer norm of rows, a cluster of two a row over distributed shared memory; then a fused chain of
// two kernels by programmatic dependent launch.
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <vector>

#include "check.h"
namespace cg = cooperative_groups;
constexpr int kThreads = 128, kColumns = 1024;
__device__ float2 block_sum(float2 v, float2* warps) {
  for (int d = 16; d; d /= 2) {
    v.x += __shfl_xor_sync(~0u, v.x, d);
    v.y += __shfl_xor_sync(~0u, v.y, d);
  }
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
  __syncthreads();
  v = warps[0];
  for (int w = 1; w < kThreads / 32; ++w) {
    v.x += warps[w].x;
    v.y += warps[w].y;
  }
  return v;
}
__global__ void __launch_bounds__(kThreads) norm(const half2* in, half2* out, const half2* weight) {
  __shared__ float2 warps[kThreads / 32];
  __shared__ float2 part;
  auto cluster = cg::this_cluster();
  const int row = blockIdx.y, half_row = kColumns / 4;
  const half2* from = in + row * (kColumns / 2) + cluster.block_rank() * half_row;
  cudaGridDependencySynchronize();
  float2 v = {0, 0};
  half2 kept[2];
  for (int i = 0; i < 2; ++i) {
    kept[i] = from[threadIdx.x + i * kThreads];
    const float2 f = __half22float2(kept[i]);
    v.x += f.x + f.y;
    v.y += f.x * f.x + f.y * f.y;
  }
  v = block_sum(v, warps);
  if (threadIdx.x == 0) part = v;
  cluster.sync();
  const float2 other = *cluster.map_shared_rank(&part, cluster.block_rank() ^ 1);
  cudaTriggerProgrammaticLaunchCompletion();
  const float mean = (v.x + other.x) / kColumns,
              scale = rsqrtf((v.y + other.y) / kColumns - mean * mean + 1e-5f);
  for (int i = 0; i < 2; ++i) {
    const float2 f = __half22float2(kept[i]),
                 w = __half22float2(
                     weight[cluster.block_rank() * half_row + threadIdx.x + i * kThreads]);
    out[row * (kColumns / 2) + cluster.block_rank() * half_row + threadIdx.x + i * kThreads] =
        __floats2half2_rn((f.x - mean) * scale * w.x, (f.y - mean) * scale * w.y);
  }
  cluster.sync();
}
int main() {
  const int rows = 5, n = rows * kColumns;
  std::vector<half> x(n), w(kColumns), y(n);
  for (int i = 0; i < n; ++i) x[i] = __float2half(float(i * 37 % 101) / 50 - 1);
  for (int i = 0; i < kColumns; ++i) w[i] = __float2half(1 + i % 3);
  half2 *a, *b, *c, *g;
  CHECK(cudaMalloc(&a, n * 2));
  CHECK(cudaMalloc(&b, n * 2));
  CHECK(cudaMalloc(&c, n * 2));
  CHECK(cudaMalloc(&g, kColumns * 2));
  CHECK(cudaMemcpy(a, x.data(), n * 2, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(g, w.data(), kColumns * 2, cudaMemcpyHostToDevice));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaLaunchConfig_t config = {};
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = 2;
  attributes[0].val.clusterDim.y = 1;
  attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  config.gridDim = dim3(2, rows);
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  CHECK(cudaLaunchKernelEx(&config, norm, (const half2*)a, b, (const half2*)g));
  CHECK(cudaLaunchKernelEx(&config, norm, (const half2*)b, c, (const half2*)g));
  CHECK(cudaMemcpyAsync(y.data(), c, n * 2, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int r = 0; r < rows; ++r) {
    std::vector<double> v(kColumns);
    for (int i = 0; i < kColumns; ++i) v[i] = __half2float(x[r * kColumns + i]);
    for (int pass = 0; pass < 2; ++pass) {
      double s = 0, q = 0;
      for (double e : v) {
        s += e;
        q += e * e;
      }
      const double mean = s / kColumns, scale = 1 / std::sqrt(q / kColumns - mean * mean + 1e-5);
      for (int i = 0; i < kColumns; ++i)
        v[i] = __half2float(__float2half(float((v[i] - mean) * scale * __half2float(w[i]))));
    }
    for (int i = 0; i < kColumns; ++i)
      if (!(std::fabs(v[i] - __half2float(y[r * kColumns + i])) < 2e-2)) {
        std::printf("%d %d: %f, not %f\n", r, i, __half2float(y[r * kColumns + i]), v[i]);
        return 1;
      }
  }
  std::puts("ok");
  return 0;
}
