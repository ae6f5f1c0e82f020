// Right versions, written small, of what published kernels got wrong with Hopper's asynchronous
// copies: a ring of stages, roles that skip tiles alike, a bulk store before a flag.
#include <cuda_runtime.h>

#include <cstdint>

#include "check.h"
#include "mbarrier.h"

namespace {

constexpr int kWords = 64, kBytes = kWords * 4, kStages = 3, kTiles = 7, kThreads = 64;

struct Ring {
  alignas(128) int words[kStages][kWords];
  alignas(8) uint64_t full[kStages];
  alignas(8) uint64_t empty[kStages];
};

__device__ void bring(int* to, const int* from, uint64_t* bar) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_of(bar)),
               "r"(kBytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(address_of(to)),
      "l"(from), "r"(kBytes), "r"(address_of(bar))
      : "memory");
}
__device__ void init_ring(Ring& ring) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      init(&ring.full[i], 1);
      init(&ring.empty[i], 1);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
}

__device__ void fence_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// One warp brings tiles, the other adds them up; tiles without elements are skipped by both.
// flashinfer#3630 waited for the first stage's barrier at each stage; in flash-attention#2761 the
// roles disagreed on which tiles are empty; in #2258 a role's phase stood still at empty ones.
__global__ void ring_of_stages(const int* in, const int* counts, int* out) {
  __shared__ Ring ring;
  init_ring(ring);
  const unsigned lane = threadIdx.x % 32;
  int step = 0, sum = 0;
  for (int tile = 0; tile < kTiles; ++tile) {
    const int stage = step % kStages, turn = step / kStages;
    if (threadIdx.x < 32) {
      if (counts[tile] == 0) continue;  // brings
      if (lane == 0) {
        if (turn > 0) wait(&ring.empty[stage], turn - 1 & 1);
        bring(ring.words[stage], in + tile * kWords, &ring.full[stage]);
      }
    } else {
      if (counts[tile] == 0) continue;  // adds
      wait(&ring.full[stage], turn & 1);
      for (int i = lane; i < kWords; i += 32) sum += ring.words[stage][i];
      __syncwarp();
      if (lane == 0) arrive(&ring.empty[stage]);
    }
    ++step;
  }
  if (threadIdx.x >= 32) out[lane] = sum;
}

// A bulk store, then a flag: the store has to be complete, and not only to have read its source
// (flash-attention#2510).
__global__ void store_and_publish(unsigned* flag, int* data, int* out) {
  __shared__ alignas(128) int tile[kWords];
  if (blockIdx.x == 0) {
    tile[threadIdx.x] = threadIdx.x;
    fence_async();
    __syncthreads();
    if (threadIdx.x == 0) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(data),
                   "r"(address_of(tile)), "r"(kBytes)
                   : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
      asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag) : "memory");
    }
    return;
  }
  if (threadIdx.x == 0) {
    unsigned there = 0;
    while (there == 0) {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(there) : "l"(flag) : "memory");
    }
  }
  __syncthreads();
  out[threadIdx.x] = data[threadIdx.x];
}

// Results go out of the buffer into which the next tile comes (DeepEP#642 had no proxy fence
// between ordinary stores to it and the next copy).
__global__ void buffer_again(const int* in, int* out) {
  __shared__ alignas(128) int buffer[kWords];
  __shared__ alignas(8) uint64_t full;
  if (threadIdx.x == 0) {
    init(&full, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  for (int tile = 0; tile < kTiles; ++tile) {
    if (threadIdx.x == 0) bring(buffer, in + tile * kWords, &full);
    wait(&full, tile & 1);
    const int mine = buffer[threadIdx.x];
    __syncthreads();
    buffer[kWords - 1 - threadIdx.x] = mine;
    __syncthreads();
    out[tile * kWords + threadIdx.x] = buffer[threadIdx.x];
    fence_async();  // before the next copy
    __syncthreads();
  }
}

template <typename T>
T* zeros(int count) {
  T* made = nullptr;
  cudaMalloc(&made, count * sizeof(T));
  cudaMemset(made, 0, count * sizeof(T));
  return made;
}

}  // namespace

int main() {
  const int filled[kTiles] = {64, 64, 0, 0, 64, 64, 64};
  int *in = zeros<int>(kTiles * kWords), *out = zeros<int>(kTiles * kWords);
  int *counts = zeros<int>(kTiles), *data = zeros<int>(kWords);
  unsigned* flag = zeros<unsigned>(1);
  CHECK(cudaMemcpy(counts, filled, sizeof filled, cudaMemcpyHostToDevice));
  ring_of_stages<<<1, kThreads>>>(in, counts, out);
  store_and_publish<<<2, kThreads>>>(flag, data, out);
  buffer_again<<<1, kThreads>>>(in, out);
  CHECK(cudaDeviceSynchronize());
  return 0;
}
