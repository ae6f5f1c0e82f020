// A buffer of which all is written that counts: its padding is read, and what comes of that is
// thrown away.
#include <cuda_runtime.h>

#include <vector>

#include "check.h"

namespace {

constexpr int kCount = 96, kPadded = 128;

__global__ void twice(const int* in, int* out) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  const int value = in[at] * 2;
  if (at < kCount) out[at] = value;
}

}  // namespace

int main() {
  std::vector<int> host(kCount);
  for (int at = 0; at < kCount; ++at) host[at] = at;
  int *in, *out;
  CHECK(cudaMalloc(&in, kPadded * sizeof(int)));
  CHECK(cudaMalloc(&out, kCount * sizeof(int)));
  CHECK(cudaMemcpy(in, host.data(), kCount * sizeof(int), cudaMemcpyHostToDevice));
  twice<<<kPadded / 32, 32>>>(in, out);
  CHECK(cudaMemcpy(host.data(), out, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  for (int at = 0; at < kCount; ++at) {
    if (host[at] != 2 * at) return 1;
  }
  return 0;
}
