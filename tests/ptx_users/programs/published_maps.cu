// The right version, written small, of what a published kernel got wrong with a tensor map that it
// changes: groups of rows with a map for all of them.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "check.h"
#include "mbarrier.h"

namespace {

constexpr int kRows = 8, kColumns = 32, kTile = kRows * kColumns, kTileBytes = kTile * 4;
constexpr int kStages = 3, kGroups = 4, kSteps = 2, kThreads = 64;

struct Ring {
  alignas(128) float tiles[kStages][kTile];
  alignas(128) CUtensorMap map;
  alignas(8) uint64_t full[kStages];
  alignas(8) uint64_t empty[kStages];
};

__device__ void load(float* to, const CUtensorMap* map, uint64_t* bar, int row) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_of(bar)),
               "r"(kTileBytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];" ::"r"(address_of(to)),
      "l"(map), "r"(address_of(bar)), "r"(0), "r"(row)
      : "memory");
}
__device__ void begin_at(CUtensorMap* map, const float* rows) {
  asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(
                   address_of(map)),
               "l"(rows)
               : "memory");
}
// By a whole warp; it acquires what it has published.
__device__ void publish(CUtensorMap* to, const CUtensorMap* from) {
  asm volatile(
      "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
      " [%0], [%1], 128;" ::"l"(to),
      "r"(address_of(from))
      : "memory");
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(to) : "memory");
}

// A block's map gets each group's address in turn. Copies that are on their way read it, and have
// to be complete before it changes (DeepGEMM#343, and #430 in a copy of that kernel).
__global__ void rows_of_groups(const __grid_constant__ CUtensorMap first, CUtensorMap* maps,
                               const float* rows, float* out) {
  __shared__ Ring ring;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  CUtensorMap* const map = maps + blockIdx.x;
  if (threadIdx.x == 0) {
    ring.map = first;
    for (int i = 0; i < kStages; ++i) {
      init(&ring.full[i], 1);
      init(&ring.empty[i], 1);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  float sum = 0;
  int turn = 0;
  for (int group = 0; group < kGroups; ++group) {
    if (warp == 0) {
      for (int at = turn < kStages ? 0 : turn - kStages; at < turn; ++at) {
        wait(&ring.full[at % kStages], at / kStages & 1);  // drained
      }
      __syncwarp();
      if (lane == 0) begin_at(&ring.map, rows + group * kSteps * kTile);
      __syncwarp();
      publish(map, &ring.map);
    }
    for (int step = 0; step < kSteps; ++step, ++turn) {
      const int stage = turn % kStages;
      if (warp == 0 && lane == 0) {
        if (turn >= kStages) wait(&ring.empty[stage], turn / kStages - 1 & 1);
        load(ring.tiles[stage], map, &ring.full[stage], step * kRows);
      } else if (warp == 1) {
        wait(&ring.full[stage], turn / kStages & 1);
        for (int i = lane; i < kTile; i += 32) sum += ring.tiles[stage][i];
        __syncwarp();
        if (lane == 0) arrive(&ring.empty[stage]);
      }
    }
  }
  if (warp == 1) out[blockIdx.x * 32 + lane] = sum;
}

bool encode(CUtensorMap* map, float* data) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                   &found);
  if (found != cudaDriverEntryPointSuccess) return false;
  const cuuint64_t dims[] = {kColumns, kSteps * kRows}, strides[] = {kColumns * sizeof(float)};
  const cuuint32_t box[] = {kColumns, kRows}, steps[] = {1, 1};
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function)(
             map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, data, dims, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
             CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

int main() {
  constexpr int kBlocks = 2, kFloats = kGroups * kSteps * kTile;
  static float host[kFloats];
  for (int i = 0; i < kFloats; ++i) host[i] = static_cast<float>(i / kTile);
  float *rows, *out;
  CUtensorMap first, *maps;
  CHECK(cudaMalloc(&rows, sizeof host));
  CHECK(cudaMalloc(&out, kBlocks * 32 * sizeof(float)));
  CHECK(cudaMalloc(&maps, kBlocks * sizeof(CUtensorMap)));
  CHECK(cudaMemcpy(rows, host, sizeof host, cudaMemcpyHostToDevice));
  if (!encode(&first, rows)) return 1;
  rows_of_groups<<<kBlocks, kThreads>>>(first, maps, rows, out);
  float sums[kBlocks * 32];
  CHECK(cudaMemcpy(sums, out, sizeof sums, cudaMemcpyDeviceToHost));
  for (const float each : sums) {
    if (each != kGroups * kSteps * (kGroups * kSteps - 1) / 2 * kTile / 32) return 2;
  }
  return 0;
}
