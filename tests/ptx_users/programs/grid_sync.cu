// A cooperative grid: each CTA writes its part, all wait, each reads its neighbour's.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

__global__ void rotate(int* x, int* y) {
  const cg::grid_group grid = cg::this_grid();
  const auto i = static_cast<int>(grid.thread_rank());
  const auto count = static_cast<int>(grid.size());
  for (int round = 0; round < 2; ++round) {
    x[i] = i + round;
    grid.sync();
    y[i] = x[(i + static_cast<int>(blockDim.x)) % count];
    grid.sync();
  }
}

int main() {
  constexpr int kBlock = 64;
  int blocks_of_sm = 0, sms = 0;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_of_sm, rotate, kBlock, 0);
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
  const int blocks = blocks_of_sm * sms, count = blocks * kBlock;
  if (blocks < 2) return 1;
  int *x, *y;
  cudaMallocManaged(&x, count * sizeof(int));
  cudaMallocManaged(&y, count * sizeof(int));
  void* arguments[] = {&x, &y};
  if (cudaLaunchCooperativeKernel(rotate, dim3(blocks), dim3(kBlock), arguments, 0, nullptr) !=
      cudaSuccess) {
    return 2;
  }
  cudaDeviceSynchronize();
  for (int i = 0; i < count; ++i) {
    if (y[i] != (i + kBlock) % count + 1) return 3;
  }
  return 0;
}
