// One atomic for the lanes of a warp that pass.
#include <cooperative_groups.h>

#include "sample.h"
namespace cg = cooperative_groups;
__global__ void keep(const int* in, int* out, int* count) {
  const int value = in[blockIdx.x * blockDim.x + threadIdx.x];
  if (value % 3 != 0) return;
  const auto active = cg::coalesced_threads();
  int at = 0;
  if (active.thread_rank() == 0) at = atomicAdd(count, active.size());
  out[active.shfl(at, 0) + active.thread_rank()] = value;
}
int main() {
  int *in = managed<int>(256), *out = managed<int>(256), *count = managed<int>(1);
  *count = 0;
  for (int i = 0; i < 256; ++i) in[i] = i;
  keep<<<4, 64>>>(in, out, count);
  CHECK(cudaDeviceSynchronize());
  int sum = 0;
  for (int i = 0; i < *count; ++i) sum += out[i];
  return verdict(*count == 86 && sum == 3 * 85 * 86 / 2);
}
