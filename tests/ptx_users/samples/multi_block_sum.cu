// A sum over a grid that synchronizes.
#include <cooperative_groups.h>

#include "sample.h"
namespace cg = cooperative_groups;
__global__ void total(const int* in, int* parts, int* out) {
  const auto grid = cg::this_grid();
  const auto block = cg::this_thread_block();
  __shared__ int sum;
  if (block.thread_rank() == 0) sum = 0;
  block.sync();
  atomicAdd(&sum, in[grid.thread_rank()]);
  block.sync();
  if (block.thread_rank() == 0) parts[blockIdx.x] = sum;
  grid.sync();
  if (grid.thread_rank() == 0) {
    int all = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) all += parts[i];
    *out = all;
  }
}
int main() {
  int *in = managed<int>(128), *parts = managed<int>(2), *out = managed<int>(1);
  for (int i = 0; i < 128; ++i) in[i] = i;
  void* arguments[] = {&in, &parts, &out};
  CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(total), 2, 64, arguments, 0, nullptr));
  CHECK(cudaDeviceSynchronize());
  return verdict(*out == 127 * 64);
}
