// Kernels print.
#include "sample.h"
__global__ void hello(double what) {
  if (threadIdx.x == 3) printf("block %d: %5.2f %s %llx\n", blockIdx.x, what, "text", 255ull);
}
int main() {
  hello<<<2, 32>>>(2.5);
  return verdict(cudaDeviceSynchronize() == cudaSuccess);
}
