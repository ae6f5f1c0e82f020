// Host path: per call, maps and tables are built, memory for them allocated, filled and freed.
#include <algorithm>
#include <vector>

#include "call_memory.cuh"
#include "checks.cuh"
#include "kernel.cuh"
#include "tensor_map.cuh"

namespace kb::step {
namespace {

void run(const GroupGemmCall& call) {
  check_call(call, kTileK, NkLimit::kPerGroup);
  const auto count = static_cast<size_t>(call.group_count);
  std::vector<TensorMap> map_a(count);
  std::vector<TensorMap> map_b(count);
  std::vector<uint32_t> tile_ends(count);
  uint32_t tiles = 0;
  for (size_t g = 0; g < count; ++g) {
    const auto m = static_cast<uint32_t>(call.m[g]);
    const auto n = static_cast<uint32_t>(call.n[g]);
    const auto k = static_cast<uint32_t>(call.k[g]);
    map_a[g] = encode_operand_map(reinterpret_cast<const void*>(call.a[g]), m, k, kTileM);
    map_b[g] = encode_operand_map(reinterpret_cast<const void*>(call.b[g]), n, k, kTileN);
    tiles += count_tiles(m, n, kTileM, kTileN);
    tile_ends[g] = tiles;
  }

  CallMemory memory;
  const Groups groups{.map_a = memory.copy(map_a),
                      .map_b = memory.copy(map_b),
                      .c = memory.copy(call.c, count),
                      .sfa = memory.copy(call.sfa, count),
                      .sfb = memory.copy(call.sfb, count),
                      .m = memory.copy(call.m, count),
                      .n = memory.copy(call.n, count),
                      .k = memory.copy(call.k, count),
                      .tile_ends = memory.copy(tile_ends),
                      .count = static_cast<uint32_t>(count)};
  const auto sms = static_cast<uint32_t>(rt::sm_count());
  rt::launch(group_gemm,
             {.grid = {std::min(tiles, sms), 1, 1},
              .threads = kThreads,
              .shared_bytes = sizeof(SharedStorage),
              .stream = {call.stream}},
             groups);
  memory.free();
}

}  // namespace
}  // namespace kb::step

#include "group_gemm_entry.cuh"
