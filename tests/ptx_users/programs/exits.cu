// Threads without work leave, and those that stay vote, shuffle and meet without them.
#include <cstdio>

namespace {

constexpr int kCount = 70, kBlock = 64, kWarp = 32;

__global__ void ranks(const int* in, int* out) {
  __shared__ int before[kBlock / kWarp];
  const int at = blockIdx.x * kBlock + threadIdx.x;
  if (at >= kCount) return;
  const unsigned kept = __ballot_sync(~0u, in[at] > 0), lane = threadIdx.x % kWarp;
  if (lane == 0) before[threadIdx.x / kWarp] = __popc(kept);
  __syncthreads();
  const int first = __shfl_sync(~0u, before[0], 0);
  out[at] = __popc(kept & ((1u << lane) - 1)) + (threadIdx.x >= kWarp ? first : 0);
}

}  // namespace

int main() {
  int values[kCount], found[kCount], *in, *out;
  for (int at = 0; at < kCount; ++at) values[at] = at % 3 - 1;
  cudaMalloc(&in, sizeof values);
  cudaMalloc(&out, sizeof values);
  cudaMemcpy(in, values, sizeof values, cudaMemcpyHostToDevice);
  ranks<<<2, kBlock>>>(in, out);
  cudaMemcpy(found, out, sizeof found, cudaMemcpyDeviceToHost);
  for (int at = 0, rank = 0; at < kCount; ++at) {
    if (at % kBlock == 0) rank = 0;
    if (found[at] != rank) {
      std::printf("wrong at %d\n", at);
      return 1;
    }
    rank += values[at] > 0;
  }
  return 0;
}
