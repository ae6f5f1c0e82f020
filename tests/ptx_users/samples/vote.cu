// Votes and matches of a warp.
#include "sample.h"
__global__ void vote(unsigned* out) {
  const unsigned lane = threadIdx.x;
  out[lane] = __ballot_sync(~0u, lane % 3 == 0);
  out[32 + lane] = __any_sync(~0u, lane == 7) + 2 * __all_sync(~0u, lane < 32);
  out[64 + lane] = __match_any_sync(~0u, lane / 8);
  out[96 + lane] = __reduce_add_sync(~0u, lane);
}
int main() {
  auto* out = managed<unsigned>(128);
  vote<<<1, 32>>>(out);
  CHECK(cudaDeviceSynchronize());
  return verdict(out[5] == 0x49249249 && out[40] == 3 && out[64 + 9] == 0xff00 && out[97] == 496);
}
