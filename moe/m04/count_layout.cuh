// Count and lay out: how many tokens each expert gets, and where its rows start once routes are
// sorted by expert. One CTA; the counts stay in shared memory. One thread adds up.
#pragma once

#include "fused_moe.cuh"
#include "ptx/red.cuh"
#include "ptx/warp.cuh"

namespace kb::step::count_layout {

inline constexpr uint32_t kThreads = 256;

struct SharedStorage {
  uint32_t counts[kMaxExperts];
  uint32_t offsets[kMaxExperts + 1];
};

struct Arguments {
  const uint32_t* ids;  // [routes]
  uint32_t* offsets;    // [experts + 1]
  uint32_t* next_rows;  // [experts]: the next free row of each, its first one to begin with
  uint32_t experts;
  uint32_t routes;
};

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) lay_out_routes(KB_GRID_CONSTANT(Arguments) args) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t thread = ptx::thread_index();
  for (uint32_t expert = thread; expert < args.experts; expert += kThreads) {
    shared.counts[expert] = 0;
  }
  ptx::bar_sync();
  for (uint64_t route = thread; route < args.routes; route += kThreads) {
    ptx::red_relaxed_cta_shared_add_u32(&shared.counts[args.ids[route]], 1);
  }
  ptx::bar_sync();

  if (thread == 0) {
    uint32_t offset = 0;
    for (uint32_t expert = 0; expert < args.experts; ++expert) {
      shared.offsets[expert] = offset;
      offset += shared.counts[expert];
    }
    shared.offsets[args.experts] = offset;
  }
  ptx::bar_sync();
  for (uint32_t expert = thread; expert < args.experts; expert += kThreads) {
    args.offsets[expert] = shared.offsets[expert];
    args.next_rows[expert] = shared.offsets[expert];
  }
  if (thread == 0) args.offsets[args.experts] = shared.offsets[args.experts];
}

}  // namespace kb::step::count_layout
