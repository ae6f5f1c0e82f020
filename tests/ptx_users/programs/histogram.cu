// Threads and CTAs count in the same bins, with no order and no atomics.
#include <cuda_runtime.h>

__global__ void add(int* counts) {
  const int bin = threadIdx.x % 16;
  const int old = counts[bin];
  counts[bin] = old + 1;
}

int main() {
  int* counts;
  const int bytes = 16 * sizeof(int);
  if (cudaMalloc(&counts, bytes) != cudaSuccess) return 1;
  if (cudaMemset(counts, 0, bytes) != cudaSuccess) return 1;
  add<<<2, 32>>>(counts);
  return cudaDeviceSynchronize() != cudaSuccess;
}
