// Right versions, written small, of what published kernels got wrong with clusters: pairs of CTAs
// that share a tile, CTAs without a tile.
#include <cuda_runtime.h>

#include <cstdint>

#include "check.h"

namespace {

constexpr int kWords = 64, kBytes = kWords * 4, kStages = 2, kThreads = 64, kCluster = 2;

__device__ uint32_t address_of(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ uint32_t rank_in_cluster() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ void meet() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
__device__ void init(uint64_t* bar, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_of(bar)), "r"(count));
}
__device__ void inits_are_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ void wait(const uint64_t* bar, uint32_t parity) {
  uint32_t done = 0;
  while (!done) {
    asm volatile(
        "{ .reg .pred p;"
        " mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;"
        " selp.b32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(address_of(bar)), "r"(parity)
        : "memory");
  }
}
__device__ void arrive(uint64_t* bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_of(bar)) : "memory");
}
__device__ void arrive_at(const uint64_t* bar, uint32_t rank) {
  asm volatile(
      "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1;"
      " mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote]; }" ::"r"(address_of(bar)),
      "r"(rank)
      : "memory");
}
__device__ void expect(uint64_t* bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_of(bar)),
               "r"(bytes)
               : "memory");
}
__device__ void copy(int* to, const int* from, uint64_t* bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(address_of(to)),
      "l"(from), "r"(kBytes), "r"(address_of(bar))
      : "memory");
}
__device__ void copy_to_both(int* to, const int* from, uint64_t* bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1], %2, [%3], %4;" ::"r"(address_of(to)),
      "l"(from), "r"(kBytes), "r"(address_of(bar)), "h"(uint16_t{(1 << kCluster) - 1})
      : "memory");
}

// Tiles of groups, each group with its own number of steps. The CTAs of a cluster take tiles beside
// each other, which share the second operand: a group's tiles are padded to whole clusters
// (DeepGEMM#429: a cluster took tiles of two groups; #415: then one of its CTAs did not share).
constexpr int kGroups = 2, kTiles = 3;
constexpr int kPadded = (kTiles + kCluster - 1) / kCluster * kCluster;

struct Stages {
  alignas(128) int own[kStages][kWords];
  alignas(128) int shared[kStages][kWords];
  alignas(8) uint64_t full[kStages];
  alignas(8) uint64_t empty[kStages];
};

__device__ int steps_of(int group) {
  return group == 0 ? 2 : 5;
}
__global__ void __cluster_dims__(kCluster, 1, 1)
    tiles_of_groups(const int* rows, const int* columns, int* out) {
  __shared__ Stages stages;
  const uint32_t rank = rank_in_cluster();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      init(&stages.full[i], 1);
      init(&stages.empty[i], kCluster);
    }
    inits_are_done();
  }
  meet();
  const unsigned lane = threadIdx.x % 32;
  int turn = 0;
  for (int tile = blockIdx.x; tile < kGroups * kPadded; tile += gridDim.x) {
    const int group = tile / kPadded, place = tile % kPadded;
    const bool both = true;
    int sum = 0;
    for (int step = 0; step < steps_of(group); ++step, ++turn) {
      const int stage = turn % kStages;
      if (threadIdx.x == 0) {
        if (turn >= kStages) wait(&stages.empty[stage], turn / kStages - 1 & 1);
        expect(&stages.full[stage], 2 * kBytes);
        copy(stages.own[stage], rows + (place < kTiles ? place : 0) * kWords, &stages.full[stage]);
        const int* from = columns + group * kWords;
        if (!both) copy(stages.shared[stage], from, &stages.full[stage]);
        if (both && rank == 0) copy_to_both(stages.shared[stage], from, &stages.full[stage]);
      } else if (threadIdx.x >= 32) {
        wait(&stages.full[stage], turn / kStages & 1);
        for (int i = lane; i < kWords; i += 32) {
          sum += stages.own[stage][i] * stages.shared[stage][i];
        }
        __syncwarp();
        if (lane < kCluster) arrive_at(&stages.empty[stage], both ? lane : rank);
      }
    }
    if (threadIdx.x >= 32 && place < kTiles) out[(group * kTiles + place) * 32 + lane] = sum;
  }
  meet();
}

// One warp brings a tile, another one what is added to it, once the first has begun. A grid is
// whole clusters, so that a CTA may have no tile (cutlass#2172: the second waited there, too).
__global__ void __cluster_dims__(kCluster, 1, 1)
    loads_in_order(const int* in, const int* added, int* out, int tiles) {
  __shared__ alignas(128) int words[kWords];
  __shared__ alignas(128) int more[kWords];
  __shared__ alignas(8) uint64_t full[2], empty[2], begun;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      init(&full[i], 1);
      init(&empty[i], 1);
    }
    init(&begun, 1);
    inits_are_done();
  }
  meet();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = blockIdx.x;
  if (warp == 0 && lane == 0) {
    for (int tile = first, turn = 0; tile < tiles; tile += gridDim.x, ++turn) {
      if (turn > 0) wait(&empty[0], turn - 1 & 1);
      expect(&full[0], kBytes);
      copy(words, in + tile * kWords, &full[0]);
      if (turn == 0) arrive(&begun);
    }
  } else if (warp == 1 && lane == 0) {
    // ahead of all tiles
    for (int tile = first, turn = 0; tile < tiles; tile += gridDim.x, ++turn) {
      if (turn == 0) wait(&begun, 0);  // the first
      if (turn > 0) wait(&empty[1], turn - 1 & 1);
      expect(&full[1], kBytes);
      copy(more, added + tile * kWords, &full[1]);
    }
  } else if (warp == 2) {
    for (int tile = first, turn = 0; tile < tiles; tile += gridDim.x, ++turn) {
      wait(&full[0], turn & 1);
      wait(&full[1], turn & 1);
      for (int i = lane; i < kWords; i += 32) out[tile * kWords + i] = words[i] + more[i];
      __syncwarp();
      if (lane < 2) arrive(&empty[lane]);
    }
  }
  meet();
}

int* zeros(int count) {
  int* made = nullptr;
  cudaMalloc(&made, count * sizeof(int));
  cudaMemset(made, 0, count * sizeof(int));
  return made;
}

}  // namespace

int main() {
  constexpr int kMany = 5;  // tiles of clusters
  int *in = zeros(kMany * kWords), *added = zeros(kMany * kWords), *out = zeros(kMany * kWords);
  tiles_of_groups<<<2 * kCluster, kThreads>>>(in, added, out);
  CHECK(cudaDeviceSynchronize());
  loads_in_order<<<3 * kCluster, 96>>>(in, added, out, kMany);
  CHECK(cudaDeviceSynchronize());
  return 0;
}
