// A thread reads what its neighbour writes, with no barrier between them.
#include <cuda_runtime.h>

__global__ void turn(int* out) {
  __shared__ int row[128];
  row[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = row[(threadIdx.x + 32) % 128];
}

int main() {
  int* out;
  if (cudaMalloc(&out, 128 * sizeof(int)) != cudaSuccess) return 1;
  turn<<<1, 128>>>(out);
  return cudaDeviceSynchronize() != cudaSuccess;
}
