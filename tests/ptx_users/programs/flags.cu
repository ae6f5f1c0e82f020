// What threads hand on by flags, locks and counters: through shared memory at the scope of a CTA,
// and from CTA to CTA, in launches whose CTAs wait for each other.
#include <cstdio>
#include <cuda/atomic>
#include <vector>

namespace {

constexpr int kWarp = 32, kTiles = 4, kBlocks = 3;

// One warp fills the slot, another empties it.
__global__ void through_shared(const int* in, int* out) {
  __shared__ int slot[kWarp];
  __shared__ int word;
  if (threadIdx.x == 0) word = 0;
  __syncthreads();
  const unsigned lane = threadIdx.x % kWarp;
  cuda::atomic_ref<int, cuda::thread_scope_block> full(word);
  for (int tile = 0; tile < kTiles; ++tile) {
    const bool fills = threadIdx.x < kWarp;
    while (lane == 0 && full.load(cuda::memory_order_acquire) != (fills ? 0 : 1)) {
    }
    __syncwarp();
    if (fills) {
      slot[lane] = in[tile * kWarp + lane];
    } else {
      out[tile * kWarp + lane] = 2 * slot[lane];
    }
    __syncwarp();
    if (lane == 0) full.store(fills ? 1 : 0, cuda::memory_order_release);
  }
}

// CTAs wait for the last one, which starts after them.
__global__ void behind_the_last(int* out, int* ready) {
  cuda::atomic_ref<int, cuda::thread_scope_device> flag(*ready);
  const unsigned before = gridDim.x - 1 - blockIdx.x;
  if (before == 0) {
    out[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) flag.store(1, cuda::memory_order_release);
  } else {
    while (threadIdx.x == 0 && flag.load(cuda::memory_order_acquire) == 0) {
    }
    __syncthreads();
    out[before * kWarp + threadIdx.x] = out[threadIdx.x] + before;
  }
}

// The CTA that counts last adds what all have written. Every thread has a fence, and one counts.
__global__ void last_block(const int* in, int* parts, int* out, unsigned* count) {
  __shared__ bool last;
  parts[blockIdx.x * kWarp + threadIdx.x] = in[blockIdx.x * kWarp + threadIdx.x];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(count, 1u) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  out[threadIdx.x] = 0;
  for (unsigned block = 0; block < gridDim.x; ++block) {
    out[threadIdx.x] += parts[block * kWarp + threadIdx.x];
  }
}

__global__ void locked(int* word, volatile int* sum) {
  if (threadIdx.x != 0) return;
  while (atomicCAS(word, 0, 1) != 0) {
  }
  __threadfence();
  *sum = *sum + 1;
  __threadfence();
  atomicExch(word, 0);
}

int wrong(const char* what) {
  std::printf("%s: wrong\n", what);
  return 1;
}

}  // namespace

int main() {
  constexpr int kCount = kTiles * kWarp;
  std::vector<int> first(kCount), found(kCount);
  for (int at = 0; at < kCount; ++at) first[at] = at % 17;
  int *in, *out, *parts, *words;
  cudaMalloc(&in, kCount * sizeof(int));
  cudaMalloc(&out, kCount * sizeof(int));
  cudaMalloc(&parts, kCount * sizeof(int));
  cudaMalloc(&words, 4 * sizeof(int));
  cudaMemset(words, 0, 4 * sizeof(int));
  cudaMemcpy(in, first.data(), kCount * sizeof(int), cudaMemcpyHostToDevice);
  const auto read = [&] {
    cudaMemcpy(found.data(), out, kCount * sizeof(int), cudaMemcpyDeviceToHost);
  };

  through_shared<<<1, 2 * kWarp>>>(in, out);
  read();
  for (int at = 0; at < kCount; ++at) {
    if (found[at] != 2 * first[at]) return wrong("through_shared");
  }
  behind_the_last<<<kBlocks, kWarp>>>(out, words);
  read();
  for (int at = 0; at < kBlocks * kWarp; ++at) {
    if (found[at] != at % kWarp + at / kWarp) return wrong("behind_the_last");
  }
  last_block<<<kBlocks, kWarp>>>(in, parts, out, reinterpret_cast<unsigned*>(words + 1));
  read();
  for (int at = 0; at < kWarp; ++at) {
    if (found[at] != first[at] + first[at + kWarp] + first[at + 2 * kWarp]) {
      return wrong("last_block");
    }
  }
  locked<<<kBlocks, kWarp>>>(words + 2, words + 3);
  int sum;
  cudaMemcpy(&sum, words + 3, sizeof sum, cudaMemcpyDeviceToHost);
  return sum == kBlocks ? 0 : wrong("locked");
}
