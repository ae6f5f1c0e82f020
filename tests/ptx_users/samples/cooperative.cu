// A grid that synchronizes.
#include <cooperative_groups.h>

#include "sample.h"
__global__ void turn(int* data) {
  const auto grid = cooperative_groups::this_grid();
  data[grid.thread_rank()] = grid.thread_rank();
  grid.sync();
  const int other = data[grid.size() - 1 - grid.thread_rank()];
  grid.sync();
  data[grid.thread_rank()] = other;
}
int main() {
  int* data = managed<int>(64);
  void* arguments[] = {&data};
  CHECK(cudaLaunchCooperativeKernel((void*)turn, 2, 32, arguments));
  CHECK(cudaDeviceSynchronize());
  return verdict(data[0] == 63);
}
