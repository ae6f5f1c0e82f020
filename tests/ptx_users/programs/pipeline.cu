// A stencil over tiles that a cuda::pipeline brings: one warp produces, the others consume; and a
// second kernel in which every thread does both.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cuda/pipeline>
#include <vector>

#include "check.h"
namespace cg = cooperative_groups;
constexpr int kTile = 128, kStages = 2, kThreads = 96;
__global__ void roles(const float* in, float* out, int tiles) {
  __shared__ alignas(16) float stages[kStages][kTile];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
  auto block = cg::this_thread_block();
  const auto role =
      block.thread_rank() < 32 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
  auto pipe = cuda::make_pipeline(block, &state, role);
  if (role == cuda::pipeline_role::producer) {
    for (int t = blockIdx.x, s = 0; t < tiles; t += gridDim.x, s = (s + 1) % kStages) {
      pipe.producer_acquire();
      for (int i = threadIdx.x; i < kTile / 4; i += 32)
        cuda::memcpy_async(&stages[s][4 * i], in + t * kTile + 4 * i, cuda::aligned_size_t<16>(16),
                           pipe);
      pipe.producer_commit();
    }
  } else {
    for (int t = blockIdx.x, s = 0; t < tiles; t += gridDim.x, s = (s + 1) % kStages) {
      pipe.consumer_wait();
      for (int i = threadIdx.x - 32; i < kTile; i += kThreads - 32) {
        const float left = i ? stages[s][i - 1] : 0, right = i + 1 < kTile ? stages[s][i + 1] : 0;
        out[t * kTile + i] = left + 2 * stages[s][i] + right;
      }
      pipe.consumer_release();
    }
  }
}
__global__ void unified(const float* in, float* out, int tiles) {
  extern __shared__ float stages[];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  const int mine = (tiles - int(blockIdx.x) + gridDim.x - 1) / gridDim.x;
  for (int done = 0, asked = 0; done < mine; ++done) {
    for (; asked < mine && asked < done + kStages; ++asked) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, stages + asked % kStages * kTile,
                         in + (blockIdx.x + asked * gridDim.x) * kTile,
                         cuda::aligned_size_t<16>(sizeof(float) * kTile), pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    block.sync();
    const float* stage = stages + done % kStages * kTile;
    for (int i = block.thread_rank(); i < kTile; i += block.size()) {
      const float left = i ? stage[i - 1] : 0, right = i + 1 < kTile ? stage[i + 1] : 0;
      out[(blockIdx.x + done * gridDim.x) * kTile + i] = left + 2 * stage[i] + right;
    }
    block.sync();
    pipe.consumer_release();
  }
}
int main() {
  const int tiles = 11, n = tiles * kTile;
  std::vector<float> host(n), want(n), got(n);
  for (int i = 0; i < n; ++i) host[i] = float(i % 37);
  for (int i = 0; i < n; ++i) {
    const int p = i % kTile;
    want[i] = (p ? host[i - 1] : 0) + 2 * host[i] + (p + 1 < kTile ? host[i + 1] : 0);
  }
  float *in, *out;
  CHECK(cudaMalloc(&in, n * 4));
  CHECK(cudaMalloc(&out, n * 4));
  CHECK(cudaMemcpy(in, host.data(), n * 4, cudaMemcpyHostToDevice));
  for (int which = 0; which < 2; ++which) {
    CHECK(cudaMemset(out, 0xff, n * 4));
    if (which == 0)
      roles<<<3, kThreads>>>(in, out, tiles);
    else
      unified<<<3, kThreads, kStages * kTile * 4>>>(in, out, tiles);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(got.data(), out, n * 4, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; ++i)
      if (got[i] != want[i]) {
        std::printf("kernel %d, %d: %f, not %f\n", which, i, got[i], want[i]);
        return 1;
      }
  }
  std::puts("ok");
  return 0;
}
