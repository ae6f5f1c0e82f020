// Host path: per call, three template maps are encoded; the groups travel in the kernel's argument.
// Device memory for the maps in use is kept for the calls that follow, which must be on the same
// stream.
#include <algorithm>

#include "checks.cuh"
#include "kept_buffer.cuh"
#include "kernel.cuh"
#include "tensor_map.cuh"

namespace kb::step {
namespace {

void run(const GroupGemmCall& call) {
  check_call(call, kTileK, NkLimit::kOneForAll);
  const auto count = static_cast<size_t>(call.group_count);
  const auto n = static_cast<uint32_t>(call.n[0]);
  const auto k = static_cast<uint32_t>(call.k[0]);
  Groups groups{.map_a = encode_operand_map(nullptr, kTileM, k, kTileM),
                .map_b = encode_operand_map(nullptr, n, k, kTileN),
                .map_c = encode_output_map(nullptr, kTileM, n, kChunkM, kTileN),
                .maps = nullptr,
                .table = {},
                .count = static_cast<uint32_t>(count),
                .n = n,
                .k = k};
  uint32_t tiles = 0;
  for (size_t g = 0; g < count; ++g) {
    const auto m = static_cast<uint32_t>(call.m[g]);
    tiles += count_tiles(m, n, kTileM, kTileN);
    groups.table[g] = {.a = reinterpret_cast<const void*>(call.a[g]),
                       .b = reinterpret_cast<const void*>(call.b[g]),
                       .c = reinterpret_cast<const void*>(call.c[g]),
                       .sfa = reinterpret_cast<const uint8_t*>(call.sfa[g]),
                       .sfb = reinterpret_cast<const uint8_t*>(call.sfb[g]),
                       .m = m,
                       .tile_end = tiles};
  }

  static DeviceBuffer<CtaMaps> maps;
  const uint32_t ctas = std::min(tiles, static_cast<uint32_t>(rt::sm_count()));
  groups.maps = maps.reserve(ctas);
  rt::launch(group_gemm,
             {.grid = {ctas, 1, 1},
              .threads = kThreads,
              .shared_bytes = sizeof(SharedStorage),
              .stream = {call.stream}},
             groups);
}

}  // namespace
}  // namespace kb::step

#include "group_gemm_entry.cuh"
