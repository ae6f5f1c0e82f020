// C = A · B by tiles of 16 × 16 that cp.async brings, two stages; main compares with the host's.
#include <cuda_pipeline.h>

#include <cstdio>
#include <vector>

constexpr int kTile = 16;
constexpr int kSize = 48;

__global__ void multiply(const float* a, const float* b, float* c) {
  extern __shared__ float tiles[];  // two stages of A and B
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * kTile + y, column = blockIdx.x * kTile + x;
  const auto stage = [&](int k) { return tiles + k / kTile % 2 * 2 * kTile * kTile; };
  const auto load = [&](int k) {
    float* to = stage(k) + y * kTile + x;
    __pipeline_memcpy_async(to, a + row * kSize + k + x, sizeof(float));
    __pipeline_memcpy_async(to + kTile * kTile, b + (k + y) * kSize + column, sizeof(float));
    __pipeline_commit();
  };
  load(0);
  float sum = 0;
  for (int k = 0; k < kSize; k += kTile) {
    if (k + kTile < kSize) load(k + kTile);
    __pipeline_wait_prior(k + kTile < kSize ? 1 : 0);
    __syncthreads();
    const float* left = stage(k) + y * kTile;
    const float* right = stage(k) + kTile * kTile + x;
    for (int i = 0; i < kTile; ++i) sum += left[i] * right[i * kTile];
    __syncthreads();
  }
  c[row * kSize + column] = sum;
}

int main() {
  std::vector<float> a(kSize * kSize), b(a), c(a);
  for (int i = 0; i < kSize * kSize; ++i) {
    a[i] = i % 5 - 2;
    b[i] = i % 3 - 1;
  }
  float* gpu[3];
  const size_t bytes = a.size() * sizeof(float);
  for (float*& each : gpu) cudaMalloc(&each, bytes);
  cudaMemcpy(gpu[0], a.data(), bytes, cudaMemcpyHostToDevice);
  cudaMemcpy(gpu[1], b.data(), bytes, cudaMemcpyHostToDevice);
  const int shared = 4 * kTile * kTile * sizeof(float);
  cudaFuncSetAttribute(multiply, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  const dim3 grid(kSize / kTile, kSize / kTile), block(kTile, kTile);
  multiply<<<grid, block, shared>>>(gpu[0], gpu[1], gpu[2]);
  if (cudaDeviceSynchronize() != cudaSuccess) return 1;
  cudaMemcpy(c.data(), gpu[2], bytes, cudaMemcpyDeviceToHost);
  for (int row = 0; row < kSize; ++row) {
    for (int column = 0; column < kSize; ++column) {
      float want = 0;
      for (int k = 0; k < kSize; ++k) want += a[row * kSize + k] * b[k * kSize + column];
      if (c[row * kSize + column] != want) return 2;
    }
  }
  return 0;
}
