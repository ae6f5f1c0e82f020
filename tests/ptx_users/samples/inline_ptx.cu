// Instructions written in PTX.
#include "sample.h"
__global__ void lanes(unsigned* out) {
  unsigned lane, sum;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  asm("{\n .reg .u32 t;\n add.u32 t, %1, 5;\n mad.lo.u32 %0, t, 2, 1;\n}" : "=r"(sum) : "r"(lane));
  out[threadIdx.x] = sum;
}
int main() {
  auto* out = managed<unsigned>(64);
  lanes<<<1, 64>>>(out);
  CHECK(cudaDeviceSynchronize());
  return verdict(out[33] == 13);
}
