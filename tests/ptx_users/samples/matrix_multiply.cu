// Tiles of two matrices in shared memory.
#include "sample.h"
constexpr int kSize = 32, kTile = 16;
__global__ void multiply(const float* a, const float* b, float* c) {
  __shared__ float left[kTile][kTile], right[kTile][kTile];
  const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * kTile + y,
            column = blockIdx.x * kTile + x;
  float sum = 0;
  for (int at = 0; at < kSize; at += kTile) {
    left[y][x] = a[row * kSize + at + x];
    right[y][x] = b[(at + y) * kSize + column];
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += left[y][k] * right[k][x];
    __syncthreads();
  }
  c[row * kSize + column] = sum;
}
int main() {
  float *a = managed<float>(1024), *b = managed<float>(1024), *c = managed<float>(1024);
  for (int i = 0; i < 1024; ++i) a[i] = i % 5, b[i] = i % 3;
  multiply<<<dim3(2, 2), dim3(kTile, kTile)>>>(a, b, c);
  CHECK(cudaDeviceSynchronize());
  bool right = true;
  for (int i = 0; i < 1024; ++i) {
    float sum = 0;
    for (int k = 0; k < kSize; ++k) sum += a[i / kSize * kSize + k] * b[k * kSize + i % kSize];
    right &= c[i] == sum;
  }
  return verdict(right);
}
