// Count: how many tokens each expert gets. One thread for each route, a pair of token and expert.
#pragma once

#include "ptx/red.cuh"
#include "ptx/warp.cuh"

namespace kb::step::count {

inline constexpr uint32_t kThreads = 128;

struct Arguments {
  const uint32_t* ids;  // [routes]
  uint32_t* counts;     // [experts], zero
  uint32_t routes;
};

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) count_routes(KB_GRID_CONSTANT(Arguments) args) {
  const uint64_t route = uint64_t{ptx::cta_index().x} * kThreads + ptx::thread_index();
  if (route < args.routes) ptx::red_release_gpu_global_add_u32(&args.counts[args.ids[route]], 1);
}

}  // namespace kb::step::count
