// The entry points of a group GEMM step, for the end of its launch.cu. From kb::step they take
//   run(const GroupGemmCall&)                                enqueues one call
//   kTileM, kTileN, kTileK, kStages, kThreads, kTmemColumns,
//   SharedStorage                                            of the kernel
//   kAccumulators, kClusterSize                              where they are not 1
#pragma once

#include "group_gemm.cuh"

namespace kb {

// Of a step that does not say: its own namespace is searched first.
inline constexpr uint32_t kAccumulators = 1;
inline constexpr uint32_t kClusterSize = 1;

namespace step {

inline Description description() {
  return {.tile_m = kTileM,
          .tile_n = kTileN,
          .tile_k = kTileK,
          .stages = kStages,
          .accumulators = kAccumulators,
          .threads = kThreads,
          .cluster = kClusterSize,
          .shared_bytes = sizeof(SharedStorage),
          .tmem_columns = kTmemColumns};
}

}  // namespace step
}  // namespace kb

KB_EXPORT int kb_run(const kb::GroupGemmCall* call, char* message, size_t size) {
  return kb::guarded(message, size, [&] { kb::step::run(*call); });
}

KB_EXPORT void kb_describe(kb::Description* out) {
  *out = kb::step::description();
}
