// The last block has threads beyond the array.
#include <cuda_runtime.h>

__global__ void scale(float* data, float factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  data[i] *= factor;
}

int main() {
  const int n = 1000;
  float* data;
  if (cudaMalloc(&data, n * sizeof(float)) != cudaSuccess) return 1;
  if (cudaMemset(data, 0, n * sizeof(float)) != cudaSuccess) return 1;
  scale<<<(n + 127) / 128, 128>>>(data, 2.0f);
  return cudaDeviceSynchronize() != cudaSuccess;
}
