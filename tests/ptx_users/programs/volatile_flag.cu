// One block hands a value to the others by volatile accesses.
#include "check.h"

__global__ void hand_on(volatile int* value, volatile int* flag, int* got) {
  if (blockIdx.x == 0) {
    *value = 42;
    __threadfence();  // before the flag
    *flag = 1;
  } else {
    while (*flag == 0) {
    }
    __threadfence();
    got[blockIdx.x] = *value;
  }
}

int main() {
  int *words, *got, read[4];
  CHECK(cudaMalloc(&words, 2 * sizeof(int)));
  CHECK(cudaMalloc(&got, sizeof read));
  CHECK(cudaMemset(words, 0, 2 * sizeof(int)));
  CHECK(cudaMemset(got, 0, sizeof read));
  hand_on<<<4, 1>>>(words, words + 1, got);
  CHECK(cudaMemcpy(read, got, sizeof read, cudaMemcpyDeviceToHost));
  for (int i = 1; i < 4; ++i) {
    if (read[i] != 42) return 1;
  }
  return 0;
}
