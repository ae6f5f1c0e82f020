// A device-side assert ends the launch.
#include <cassert>

#include "sample.h"
__global__ void small(int limit) {
  assert(static_cast<int>(threadIdx.x) < limit);
}
int main() {
  small<<<1, 32>>>(32);
  return verdict(cudaDeviceSynchronize() == cudaSuccess);
}
