// The sum leaves out the last element, and main sees it.
#include <cuda_runtime.h>

#include <cstdio>

__global__ void sum(int* out, const int* in, int n) {
  int total = 0;
  for (int i = 0; i < n - 1; ++i) total += in[i];
  *out = total;
}

int main() {
  int host[4] = {1, 2, 3, 4}, *in, *out, found = 0;
  if (cudaMalloc(&in, sizeof host) != cudaSuccess) return 1;
  if (cudaMalloc(&out, sizeof(int)) != cudaSuccess) return 1;
  if (cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice) != cudaSuccess) return 1;
  sum<<<1, 1>>>(out, in, 4);
  if (cudaMemcpy(&found, out, sizeof found, cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
  if (found != 10) std::printf("sum: got %d, expected 10\n", found);
  return found != 10;
}
