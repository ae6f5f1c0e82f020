// The entry points of a step that is one kernel, for the end of its launch.cu. They take from
// kb::step
//   Plan                               a call and where what passes between its phases is
//   plan_call(const FusedMoeCall&)     a Plan: reserves memory
//   enqueue(const Plan&, rt::Stream)   launches
//   kThreads, kStages<16>, SharedStorage<16>, kTileN, kTileK   of the kernel for fewest tokens
#pragma once

#include "call_graphs.cuh"
#include "fused_moe.cuh"
#include "moe_checks.cuh"

namespace kb::step {

// A call that comes again is one launch of a graph.
inline void run(const FusedMoeCall& call) {
  static CallGraphs<Plan> graphs;
  check_call(call);
  graphs.launch(plan_call(call), rt::Stream{call.stream}, enqueue);
}

inline Description description() {
  return {.tile_m = 16,
          .tile_n = kTileN,
          .tile_k = kTileK,
          .stages = kStages<16>,
          .accumulators = 1,
          .threads = kThreads,
          .cluster = 1,
          .shared_bytes = sizeof(SharedStorage<16>),
          .tmem_columns = 0};
}

}  // namespace kb::step

KB_EXPORT int kb_run(const kb::FusedMoeCall* call, char* message, size_t size) {
  return kb::guarded(message, size, [&] { kb::step::run(*call); });
}

KB_EXPORT void kb_describe(kb::Description* out) {
  *out = kb::step::description();
}
