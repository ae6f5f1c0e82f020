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
  check_call(call, kTileK, NkLimit::kPerGroup);
  const auto count = static_cast<size_t>(call.group_count);
  const auto n0 = static_cast<uint32_t>(call.n[0]);
  const auto k0 = static_cast<uint32_t>(call.k[0]);
  Groups groups{.templates = {.a = encode_operand_map(nullptr, kTileM, k0, kShareM),
                              .b = encode_operand_map(nullptr, kTileN, k0, kTileN),
                              .c = encode_output_map(nullptr, kTileM, n0, kChunk, kTileN)},
                .maps = nullptr,
                .table = {},
                .count = static_cast<uint32_t>(count)};
  uint32_t tiles = 0;
  bool nk_var = false;
  for (size_t g = 0; g < count; ++g) {
    const auto m = static_cast<uint32_t>(call.m[g]);
    const auto n = static_cast<uint32_t>(call.n[g]);
    const auto k = static_cast<uint32_t>(call.k[g]);
    nk_var = nk_var || n != n0 || k != k0;
    tiles += count_tiles(m, n, kTileM, kClusterSize * kTileN);
    groups.table[g] = {.a = reinterpret_cast<const void*>(call.a[g]),
                       .b = reinterpret_cast<const void*>(call.b[g]),
                       .c = reinterpret_cast<const void*>(call.c[g]),
                       .sfa = reinterpret_cast<const uint8_t*>(call.sfa[g]),
                       .sfb = reinterpret_cast<const uint8_t*>(call.sfb[g]),
                       .m = m,
                       .n = n,
                       .k = k,
                       .tile_end = tiles};
  }

  static DeviceBuffer<GroupMaps> maps;
  const uint32_t resident = std::max(1u, static_cast<uint32_t>(rt::sm_count()) / kClusterSize);
  const uint32_t ctas = std::min(tiles, resident) * kClusterSize;
  groups.maps = maps.reserve(size_t{ctas} * kMapSets);
  const bool single_wave = tiles <= resident;
  const auto kernel = nk_var        ? single_wave ? group_gemm<true, true> : group_gemm<true, false>
                      : single_wave ? group_gemm<false, true>
                                    : group_gemm<false, false>;
  rt::launch(kernel,
             {.grid = {ctas, 1, 1},
              .threads = kThreads,
              .shared_bytes = sizeof(SharedStorage),
              .stream = {call.stream},
              .cluster = kClusterSize},
             groups);
}

}  // namespace
}  // namespace kb::step

#include "group_gemm_entry.cuh"
