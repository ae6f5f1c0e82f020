// Host path: per call, a table of the groups with three maps for each is built in page-locked
// memory and copied. Memory on both sides is kept for the calls that follow, which must be on the
// same stream.
#include "checks.cuh"
#include "kept_buffer.cuh"
#include "kernel.cuh"
#include "tensor_map.cuh"

namespace kb::step {
namespace {

void run(const GroupGemmCall& call) {
  check_call(call, kTileK, NkLimit::kOneForAll);
  const auto count = static_cast<size_t>(call.group_count);
  const rt::Stream stream{call.stream};
  static StagedArray<Group> table;
  rt::stream_synchronize(stream);  // the last call's copy reads what is staged here
  Group* staged = table.stage(count);
  const auto n = static_cast<uint32_t>(call.n[0]);
  const auto k = static_cast<uint32_t>(call.k[0]);
  uint32_t tiles = 0;
  for (size_t g = 0; g < count; ++g) {
    const auto m = static_cast<uint32_t>(call.m[g]);
    tiles += count_tiles(m, n, kTileM, kTileN);
    const auto* a = reinterpret_cast<const void*>(call.a[g]);
    const auto* b = reinterpret_cast<const void*>(call.b[g]);
    const auto* c = reinterpret_cast<const void*>(call.c[g]);
    staged[g] = {.map_a = encode_operand_map(a, m, k, kTileM),
                 .map_b = encode_operand_map(b, n, k, kTileN),
                 .map_c = encode_output_map(c, m, n, kTileM, kChunkN),
                 .sfa = reinterpret_cast<const uint8_t*>(call.sfa[g]),
                 .sfb = reinterpret_cast<const uint8_t*>(call.sfb[g]),
                 .tile_end = tiles};
  }
  const Groups groups{
      .table = table.upload(stream), .count = static_cast<uint32_t>(count), .n = n, .k = k};
  rt::launch(group_gemm,
             {.grid = {tiles, 1, 1},
              .threads = kThreads,
              .shared_bytes = sizeof(SharedStorage),
              .stream = stream,
              .launch_control = true},
             groups);
}

}  // namespace
}  // namespace kb::step

#include "group_gemm_entry.cuh"
