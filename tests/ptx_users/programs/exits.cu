// Threads without work leave, and those that stay vote, shuffle and meet without them; what is
// copied ahead may be left behind.
#include <cstdio>

namespace {

constexpr int kCount = 70, kBlock = 64, kWarp = 32, kBlocks = 32;

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

// Of two tiles that are on their way one is used.
__global__ void ahead(const int4* in, int4* out) {
  __shared__ int4 tiles[2][kWarp];
  for (int tile = 0; tile < 2; ++tile) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;\ncp.async.commit_group;" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(&tiles[tile][threadIdx.x]))),
                 "l"(in + threadIdx.x)
                 : "memory");
  }
  asm volatile("cp.async.wait_group 1;" ::: "memory");
  __syncwarp();
  out[blockIdx.x * kWarp + threadIdx.x] = tiles[0][threadIdx.x ^ 1];
}

// Those that leave have counted before.
__global__ void counts(int* out) {
  __shared__ int sums[kWarp];
  if (threadIdx.x < kWarp) sums[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&sums[threadIdx.x % kWarp], 1);
  if (threadIdx.x >= kWarp) return;
  __syncthreads();  // without them
  out[threadIdx.x] = sums[threadIdx.x];
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
  int4* rows;
  cudaMalloc(&rows, (kBlocks + 1) * kWarp * sizeof(int4));
  cudaMemset(rows, 0, kWarp * sizeof(int4));
  ahead<<<kBlocks, kWarp>>>(rows, rows + kWarp);
  counts<<<1, 4 * kWarp>>>(out);
  cudaMemcpy(found, out, kWarp * sizeof(int), cudaMemcpyDeviceToHost);
  for (int at = 0; at < kWarp; ++at) {
    if (found[at] != 4) return 1;
  }
  return 0;
}
