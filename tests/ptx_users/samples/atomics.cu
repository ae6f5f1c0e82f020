// Every atomic of 32 and 64 bits.
#include "sample.h"
__global__ void all(int* words, unsigned long long* wide, float* real) {
  const int i = threadIdx.x;
  atomicAdd(words, i), atomicSub(words + 1, i), atomicExch(words + 2, i), atomicMax(words + 3, i);
  atomicMin(words + 4, i), atomicAnd(words + 5, 2 * i + 7), atomicOr(words + 6, 1 << i % 32);
  atomicXor(words + 7, 255), atomicAdd(wide, 1ull << 33), atomicAdd(real, 0.5f);
  atomicInc(reinterpret_cast<unsigned*>(words + 8), 17);
  for (int seen = atomicAdd(words + 9, 0), old = seen - 1; seen != old;) {
    old = seen;
    seen = atomicCAS(words + 9, old, old + 3);
  }
}
int main() {
  int* words = managed<int>(10);
  auto* wide = managed<unsigned long long>(1);
  float* real = managed<float>(1);
  for (int i = 0; i < 10; ++i) words[i] = i == 5 ? -1 : i == 4 ? 99 : 0;
  *wide = 0, *real = 0;
  all<<<1, 64>>>(words, wide, real);
  CHECK(cudaDeviceSynchronize());
  return verdict(words[0] == 2016 && words[1] == -2016 && words[3] == 63 && words[4] == 0 &&
                 words[5] == 1 && words[6] == -1 && words[7] == 0 && words[8] == 64 % 18 &&
                 words[9] == 192 && *wide == 64ull << 33 && *real == 32);
}
