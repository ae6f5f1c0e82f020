// The entry points of a fused MoE step, for the end of its launch.cu. They take
//   kb::step::run(const FusedMoeCall&)                       enqueues one call
// and from kb::step::gemm
//   kTileM, kTileN, kTileK, kThreads, SharedStorage          of the GEMM's kernel
//   kStages                                                  where there are several
#pragma once

#include "fused_moe.cuh"

namespace kb {

// Of a step that does not say: its own namespace is searched first.
inline constexpr uint32_t kStages = 1;

namespace step::gemm {

inline Description description() {
  return {.tile_m = kTileM,
          .tile_n = kTileN,
          .tile_k = kTileK,
          .stages = kStages,
          .accumulators = 1,
          .threads = kThreads,
          .cluster = 1,
          .shared_bytes = sizeof(SharedStorage),
          .tmem_columns = 0};
}

}  // namespace step::gemm
}  // namespace kb

KB_EXPORT int kb_run(const kb::FusedMoeCall* call, char* message, size_t size) {
  return kb::guarded(message, size, [&] { kb::step::run(*call); });
}

KB_EXPORT void kb_describe(kb::Description* out) {
  *out = kb::step::gemm::description();
}
