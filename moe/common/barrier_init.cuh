// The initialization of many mbarriers by one warp.
#pragma once

#include "ptx/mbarrier.cuh"

namespace kb {

KB_DEVICE void init_barrier_of_each(uint32_t /*index*/) {}

// The barrier `index` of each array, each followed by the arrivals that it waits for.
template <typename... More>
KB_DEVICE void init_barrier_of_each(uint32_t index, Mbarrier* barriers, uint32_t arrivals,
                                    More... more) {
  ptx::mbarrier_init(&barriers[index], arrivals);
  init_barrier_of_each(index, more...);
}

// Arrays of equal length, each followed by the arrivals that its barriers wait for: a warp's lane i
// initializes the i-th of each. A fence comes after the last of them.
template <uint32_t kCount, typename... More>
KB_DEVICE void init_by_lanes(uint32_t lane, Mbarrier (&barriers)[kCount], uint32_t arrivals,
                             More... more) {
  static_assert(kCount <= 32, "a lane has one of each");
  if (lane < kCount) init_barrier_of_each(lane, barriers, arrivals, more...);
}

}  // namespace kb
