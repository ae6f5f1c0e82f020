// Host path: per call, two template maps are encoded; the groups travel in the kernels' argument.
// Sums are set to zero, added to and rounded in stream order. Device memory for them and for the
// maps in use is kept for the calls that follow, which must be on the same stream.
#include <algorithm>

#include "checks.cuh"
#include "kept_buffer.cuh"
#include "kernel.cuh"
#include "tensor_map.cuh"

namespace kb::step {
namespace {

void run(const GroupGemmCall& call) {
  check_call(call, kSplits * kTileK, NkLimit::kOneForAll);
  const auto count = static_cast<size_t>(call.group_count);
  const auto n = static_cast<uint32_t>(call.n[0]);
  const auto k = static_cast<uint32_t>(call.k[0]);
  Groups groups{.map_a = encode_operand_map_sw32(nullptr, kTileM, k, kTileM),
                .map_b = encode_operand_map_sw32(nullptr, n, k, kTileN),
                .maps = nullptr,
                .sums = nullptr,
                .table = {},
                .count = static_cast<uint32_t>(count),
                .n = n,
                .k = k};
  uint32_t tiles = 0;
  uint32_t rows = 0;
  for (size_t g = 0; g < count; ++g) {
    const auto m = static_cast<uint32_t>(call.m[g]);
    tiles += kSplits * count_tiles(m, n, kTileM, kTileN);
    rows += m;
    groups.table[g] = {.a = reinterpret_cast<const void*>(call.a[g]),
                       .b = reinterpret_cast<const void*>(call.b[g]),
                       .c = reinterpret_cast<f16*>(call.c[g]),
                       .sfa = reinterpret_cast<const uint8_t*>(call.sfa[g]),
                       .sfb = reinterpret_cast<const uint8_t*>(call.sfb[g]),
                       .m = m,
                       .row_end = rows,
                       .tile_end = tiles};
  }

  static DeviceBuffer<CtaMaps> maps;
  const uint32_t ctas = std::min(tiles, static_cast<uint32_t>(rt::sm_count()));
  groups.maps = maps.reserve(ctas);
  static DeviceBuffer<float> sums;
  const size_t count_sums = size_t{rows} * n;
  groups.sums = sums.reserve(count_sums);
  const rt::Stream stream{call.stream};
  rt::memset_async(groups.sums, 0, count_sums * sizeof(float), stream);
  rt::launch(group_gemm,
             {.grid = {ctas, 1, 1},
              .threads = kThreads,
              .shared_bytes = sizeof(SharedStorage),
              .stream = stream},
             groups);
  rt::launch(round_sums,
             {.grid = {rows, 1, 1}, .threads = kRoundThreads, .shared_bytes = 0, .stream = stream},
             groups);
}

}  // namespace
}  // namespace kb::step

#include "group_gemm_entry.cuh"
