// Host path: per call, maps and tables are built in page-locked memory and copied. Memory on both
// sides is kept for the calls that follow, which must be on the same stream.
#include <algorithm>

#include "checks.cuh"
#include "kept_buffer.cuh"
#include "kernel.cuh"
#include "tensor_map.cuh"

namespace kb::step {
namespace {

struct Buffers {
  StagedArray<TensorMap> map_a, map_b;
  StagedArray<uint64_t> c, sfa, sfb;
  StagedArray<int32_t> m, n, k;
  StagedArray<uint32_t> tile_ends;
};

void run(const GroupGemmCall& call) {
  check_call(call, kTileK, NkLimit::kPerGroup);
  const auto count = static_cast<size_t>(call.group_count);
  const rt::Stream stream{call.stream};
  static Buffers buffers;
  TensorMap* map_a = buffers.map_a.stage(count);
  TensorMap* map_b = buffers.map_b.stage(count);
  uint32_t* tile_ends = buffers.tile_ends.stage(count);
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

  std::copy_n(call.c, count, buffers.c.stage(count));
  std::copy_n(call.sfa, count, buffers.sfa.stage(count));
  std::copy_n(call.sfb, count, buffers.sfb.stage(count));
  std::copy_n(call.m, count, buffers.m.stage(count));
  std::copy_n(call.n, count, buffers.n.stage(count));
  std::copy_n(call.k, count, buffers.k.stage(count));
  const Groups groups{.map_a = buffers.map_a.upload(stream),
                      .map_b = buffers.map_b.upload(stream),
                      .c = buffers.c.upload(stream),
                      .sfa = buffers.sfa.upload(stream),
                      .sfb = buffers.sfb.upload(stream),
                      .m = buffers.m.upload(stream),
                      .n = buffers.n.upload(stream),
                      .k = buffers.k.upload(stream),
                      .tile_ends = buffers.tile_ends.upload(stream),
                      .count = static_cast<uint32_t>(count)};
  rt::stream_synchronize(stream);  // the next call stages into the same memory
  const auto sms = static_cast<uint32_t>(rt::sm_count());
  rt::launch(group_gemm,
             {.grid = {std::min(tiles, sms), 1, 1},
              .threads = kThreads,
              .shared_bytes = sizeof(SharedStorage),
              .stream = stream},
             groups);
}

}  // namespace
}  // namespace kb::step

#include "group_gemm_entry.cuh"
