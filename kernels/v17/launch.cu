// Host path: per call, three maps are encoded for each group; they travel in the kernel's argument
// with the groups, and nothing else does.
#include <algorithm>

#include "checks.cuh"
#include "kernel.cuh"
#include "tensor_map.cuh"

namespace kb::step {
namespace {

void run(const GroupGemmCall& call) {
  check_call(call, kTileK, NkLimit::kOneForAll);
  const auto count = static_cast<size_t>(call.group_count);
  const auto n = static_cast<uint32_t>(call.n[0]);
  const auto k = static_cast<uint32_t>(call.k[0]);
  Groups groups{.table = {}, .count = static_cast<uint32_t>(count), .n = n, .k = k};
  uint32_t tiles = 0;
  for (size_t g = 0; g < count; ++g) {
    const auto m = static_cast<uint32_t>(call.m[g]);
    tiles += count_tiles(m, n, kTileM, kClusterSize * kTileN);
    const auto* a = reinterpret_cast<const void*>(call.a[g]);
    const auto* b = reinterpret_cast<const void*>(call.b[g]);
    const auto* c = reinterpret_cast<const void*>(call.c[g]);
    groups.table[g] = {.map_a = encode_operand_map(a, m, k, kShareM),
                       .map_b = encode_operand_map(b, n, k, kTileN),
                       .map_c = encode_output_map(c, m, n, kTileM, kChunkN),
                       .sfa = reinterpret_cast<const uint8_t*>(call.sfa[g]),
                       .sfb = reinterpret_cast<const uint8_t*>(call.sfb[g]),
                       .tile_end = tiles};
  }

  const uint32_t resident = std::max(1u, static_cast<uint32_t>(rt::sm_count()) / kClusterSize);
  rt::launch(group_gemm,
             {.grid = {std::min(tiles, resident) * kClusterSize, 1, 1},
              .threads = kThreads,
              .shared_bytes = sizeof(SharedStorage),
              .stream = {call.stream},
              .cluster = kClusterSize},
             groups);
}

}  // namespace
}  // namespace kb::step

#include "group_gemm_entry.cuh"
