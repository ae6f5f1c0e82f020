// Host path: the groups travel in the kernel's argument; nothing else is needed.
#include "check_groups.cuh"
#include "gemm.cuh"

namespace kb::step {
namespace {

void run(const GroupGemmCall& call) {
  check_groups(call, gemm::kTileK);
  gemm::Arguments arguments = {};
  uint32_t tiles = 0;
  for (int g = 0; g < call.group_count; ++g) {
    const auto operand = [](uint64_t codes, uint64_t scales, int32_t rows) {
      return gemm::Operand{.codes = reinterpret_cast<const uint8_t*>(codes),
                           .scales = reinterpret_cast<const uint8_t*>(scales),
                           .rows = static_cast<uint32_t>(rows)};
    };
    const gemm::Operand weights = operand(call.b[g], call.sfb[g], call.n[g]);
    const gemm::Operand tokens = operand(call.a[g], call.sfa[g], call.m[g]);
    tiles += count_tiles(tokens.rows, weights.rows, gemm::kTileN, gemm::kTileM);
    arguments.groups[g] = {.weights = weights,
                           .tokens = tokens,
                           .c = reinterpret_cast<f16*>(call.c[g]),
                           .k = static_cast<uint32_t>(call.k[g]),
                           .tile_end = tiles};
  }
  if (tiles == 0) return;
  rt::launch(gemm::multiply_groups,
             {.grid = {tiles, 1, 1},
              .threads = gemm::kThreads,
              .shared_bytes = sizeof(gemm::SharedStorage),
              .stream = {call.stream}},
             arguments);
}

}  // namespace
}  // namespace kb::step

KB_EXPORT int kb_run(const kb::GroupGemmCall* call, char* message, size_t size) {
  return kb::guarded(message, size, [&] { kb::step::run(*call); });
}

KB_EXPORT void kb_describe(kb::Description* out) {
  using namespace kb::step::gemm;
  *out = {.tile_m = kTileM,
          .tile_n = kTileN,
          .tile_k = kTileK,
          .stages = 1,
          .accumulators = 1,
          .threads = kThreads,
          .cluster = 1,
          .shared_bytes = sizeof(SharedStorage),
          .tmem_columns = 0};
}
