// Count and lay out: how many tokens each expert gets, and where its rows start once routes are
// sorted by expert. One CTA; the counts stay in shared memory. One thread adds up.
#pragma once

#include "fused_moe.cuh"
#include "ptx/red.cuh"
#include "ptx/warp.cuh"

namespace kb::step::count_layout {

inline constexpr uint32_t kThreads = kMaxExperts;  // one for each
inline constexpr uint32_t kIds = 4;                // that a thread has on their way at a time

struct SharedStorage {
  uint32_t counts[kMaxExperts];
};

struct Arguments {
  const uint32_t* ids;  // [routes]
  uint32_t* offsets;    // [experts + 1]
  uint32_t* next_rows;  // [experts]: the next free row of each, its first one to begin with
  uint32_t experts;
  uint32_t routes;
};

KB_DEVICE void count_routes(SharedStorage& shared, const Arguments& args) {
  for (uint64_t first = ptx::thread_index(); first < args.routes; first += kIds * kThreads) {
    uint32_t ids[kIds];
#pragma unroll
    for (uint32_t i = 0; i < kIds; ++i) {
      const uint64_t route = first + i * kThreads;
      if (route < args.routes) ids[i] = args.ids[route];
    }
#pragma unroll
    for (uint32_t i = 0; i < kIds; ++i) {
      if (first + i * kThreads < args.routes) {
        ptx::red_relaxed_cta_shared_add_u32(&shared.counts[ids[i]], 1);
      }
    }
  }
}

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) lay_out_routes(KB_GRID_CONSTANT(Arguments) args) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t expert = ptx::thread_index();
  shared.counts[expert] = 0;
  ptx::bar_sync();
  count_routes(shared, args);
  ptx::bar_sync();

  const uint32_t count = shared.counts[expert];
  ptx::bar_sync();
  if (expert == 0) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < args.experts; ++i) {
      sum += shared.counts[i];
      shared.counts[i] = sum;
    }
  }
  ptx::bar_sync();
  const uint32_t end = shared.counts[expert];
  if (expert < args.experts) {
    args.offsets[expert + 1] = end;
    args.next_rows[expert] = end - count;
  }
  if (expert == 0) args.offsets[0] = 0;
}

}  // namespace kb::step::count_layout
