// A device function calls itself.
#include "sample.h"
__device__ int fibonacci(int n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}
__global__ void numbers(int* out) {
  out[threadIdx.x] = fibonacci(threadIdx.x % 12);
}
int main() {
  int* out = managed<int>(32);
  CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 4096));
  numbers<<<1, 32>>>(out);
  CHECK(cudaDeviceSynchronize());
  return verdict(out[11] == 89);
}
