// Pi by random points of each thread's own sequence.
#include <curand_kernel.h>

#include "sample.h"
__global__ void throw_darts(int* hits, int each) {
  curandState state;
  curand_init(1234, threadIdx.x, 0, &state);
  int count = 0;
  for (int i = 0; i < each; ++i) {
    const float x = curand_uniform(&state), y = curand_uniform(&state);
    count += x * x + y * y <= 1;
  }
  atomicAdd(hits, count);
}
int main() {
  int* hits = managed<int>(1);
  *hits = 0;
  throw_darts<<<1, 64>>>(hits, 100);
  CHECK(cudaDeviceSynchronize());
  const double pi = 4.0 * *hits / 6400;
  return verdict(pi > 3.0 && pi < 3.3);
}
