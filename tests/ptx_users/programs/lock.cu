// A lock that each CTA takes and gives back.
#include <cuda_runtime.h>

#include "check.h"

namespace {

__global__ void add(int* lock, int* sum) {
  while (atomicCAS(lock, 0, 1) != 0) __nanosleep(20);
  __threadfence();
  *static_cast<volatile int*>(sum) += blockIdx.x;
  __threadfence();
  atomicExch(lock, 0);
}

}  // namespace

int main() {
  int *memory, host[2];
  CHECK(cudaMalloc(&memory, sizeof host));
  CHECK(cudaMemset(memory, 0, sizeof host));
  add<<<5, 1>>>(memory, memory + 1);
  CHECK(cudaMemcpy(host, memory, sizeof host, cudaMemcpyDeviceToHost));
  return host[1] != 10;
}
