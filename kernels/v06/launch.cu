// Host path: per call, two template maps are encoded and a table of the groups is built in
// page-locked memory and copied. Memory on both sides is kept for the calls that follow, which must
// be on the same stream.
#include "checks.cuh"
#include "kept_buffer.cuh"
#include "kernel.cuh"
#include "tensor_map.cuh"

namespace kb::step {
namespace {

struct Buffers {
  StagedArray<Group> table;
  DeviceBuffer<CtaMaps> maps;
};

void run(const GroupGemmCall& call) {
  check_call(call, kTileK, NkLimit::kOneForAll);
  const auto count = static_cast<size_t>(call.group_count);
  const rt::Stream stream{call.stream};
  static Buffers buffers;
  Group* table = buffers.table.stage(count);
  const auto n = static_cast<uint32_t>(call.n[0]);
  const auto k = static_cast<uint32_t>(call.k[0]);
  uint32_t tiles = 0;
  for (size_t g = 0; g < count; ++g) {
    const auto m = static_cast<uint32_t>(call.m[g]);
    tiles += count_tiles(m, n, kTileM, kTileN);
    table[g] = {.a = reinterpret_cast<const void*>(call.a[g]),
                .b = reinterpret_cast<const void*>(call.b[g]),
                .c = reinterpret_cast<f16*>(call.c[g]),
                .sfa = reinterpret_cast<const uint8_t*>(call.sfa[g]),
                .sfb = reinterpret_cast<const uint8_t*>(call.sfb[g]),
                .m = m,
                .tile_end = tiles};
  }

  const auto sms = static_cast<uint32_t>(rt::sm_count());
  const Groups groups{.map_a = encode_operand_map(nullptr, kTileM, k, kTileM),
                      .map_b = encode_operand_map(nullptr, n, k, kTileN),
                      .maps = buffers.maps.reserve(sms),
                      .table = buffers.table.upload(stream),
                      .count = static_cast<uint32_t>(count),
                      .n = n,
                      .k = k};
  rt::stream_synchronize(stream);  // the next call stages into the same memory
  rt::launch(group_gemm,
             {.grid = {sms, 1, 1},
              .threads = kThreads,
              .shared_bytes = sizeof(SharedStorage),
              .stream = stream},
             groups);
}

}  // namespace
}  // namespace kb::step

#include "group_gemm_entry.cuh"
