// Groups of the lanes that agree.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include "sample.h"
namespace cg = cooperative_groups;
__global__ void odd_and_even(const int* in, int* odd, int* even) {
  const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  const int value = in[warp.thread_rank()];
  const auto group = cg::binary_partition(warp, value % 2 != 0);
  const int sum = cg::reduce(group, value, cg::plus<int>());
  if (group.thread_rank() == 0) *(value % 2 != 0 ? odd : even) = sum;
}
int main() {
  int *in = managed<int>(32), *sums = managed<int>(2);
  int want[2] = {0, 0};
  for (int i = 0; i < 32; ++i) in[i] = i * i % 11, want[in[i] % 2] += in[i];
  odd_and_even<<<1, 32>>>(in, sums + 1, sums);
  CHECK(cudaDeviceSynchronize());
  return verdict(sums[0] == want[0] && sums[1] == want[1]);
}
