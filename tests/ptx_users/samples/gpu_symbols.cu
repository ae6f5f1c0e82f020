// Two GPUs: each has the variables of the program for itself.
#include "sample.h"
__constant__ int factor;
__device__ int calls = 5;
__global__ void scale(int* data) {
  data[threadIdx.x] *= factor;
  if (threadIdx.x == 0) ++calls;
}
int main() {
  need_two_gpus();
  int* there[2];
  bool right = true;
  for (int gpu = 0; gpu < 2; ++gpu) {
    const int value = gpu + 2;
    CHECK(cudaSetDevice(gpu));
    CHECK(cudaMalloc(&there[gpu], 128));
    CHECK(cudaMemset(there[gpu], 1, 128));
    CHECK(cudaMemcpyToSymbol(factor, &value, sizeof value));
  }
  for (int gpu = 0; gpu < 2; ++gpu) {
    int here[32], count;
    CHECK(cudaSetDevice(gpu));
    scale<<<1, 32>>>(there[gpu]);
    CHECK(cudaMemcpy(here, there[gpu], 128, cudaMemcpyDefault));
    CHECK(cudaMemcpyFromSymbol(&count, calls, sizeof count));
    right = right && here[31] == 0x01010101 * (gpu + 2) && count == 6;
  }
  return verdict(right);
}
