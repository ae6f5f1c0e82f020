// Count and lay out: how many tokens each expert gets, and where its rows start once routes are
// sorted by expert. One CTA; the counts stay in shared memory and are added up by all threads, in
// as many steps as the number of experts has bits (Hillis and Steele 1986).
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
  uint32_t end = count;
  for (uint32_t distance = 1; distance < args.experts; distance *= 2) {
    const uint32_t before = expert < distance ? 0 : shared.counts[expert - distance];
    ptx::bar_sync();
    end += before;
    shared.counts[expert] = end;
    ptx::bar_sync();
  }
  if (expert < args.experts) {
    args.offsets[expert + 1] = end;
    args.next_rows[expert] = end - count;
  }
  if (expert == 0) args.offsets[0] = 0;
}

}  // namespace kb::step::count_layout
