// Threads, warps and named barriers: PTX ISA 9.1, 9.7.13 (bar, elect, vote, redux), 9.7.9 (shfl),
// 9.7 (setmaxnreg), 10 (special registers).
#pragma once

#include "types.cuh"

namespace kb::ptx {

inline constexpr uint32_t kAllLanes = 0xffffffff;

// PTX: mov.u32 index, %tid.x;
// every SM · any thread. Index of the thread in the CTA.
KB_DEVICE uint32_t thread_index();

// PTX: mov.u32 index, %tid.x; shr.u32 warp, index, 5;
// every SM · any thread. Index of the warp in a CTA with one dimension.
KB_DEVICE uint32_t warp_index();

// PTX: mov.u32 lane, %laneid;
// every SM · any thread. 0 … 31.
KB_DEVICE uint32_t lane_index();

// PTX: mov.u32 x, %ctaid.x; mov.u32 y, %ctaid.y; mov.u32 z, %ctaid.z;
// every SM · any thread.
KB_DEVICE CtaIndex cta_index();

// PTX: mov.u32 x, %nctaid.x; mov.u32 y, %nctaid.y; mov.u32 z, %nctaid.z;
// every SM · any thread. CTAs of the grid per dimension.
KB_DEVICE CtaIndex cta_count();

// PTX: elect.sync lane|elected, members;
// sm_90+ · the converged warp, or exactly the lanes in `members`. True in one lane, the same one
// each time for one mask; do not rely on which. Orders nothing between lanes.
KB_DEVICE bool elect_sync(uint32_t members = kAllLanes);

// PTX: bar.warp.sync members;
// sm_30+ · exactly the lanes in `members`. Orders their accesses before it with those after it.
KB_DEVICE void bar_warp_sync(uint32_t members = kAllLanes);

// PTX: bar.sync 0;
// every SM · every thread of the CTA, in converged warps. Orders their generic accesses.
KB_DEVICE void bar_sync();

// PTX: bar.sync barrier, threads;
// every SM · converged warps. barrier 1 … 15 (0 is the CTA's); threads, a multiple of 32, counts
// those that sync and those that only arrive. Orders generic accesses of the participants.
KB_DEVICE void bar_sync(uint32_t barrier, uint32_t threads);

// PTX: bar.arrive barrier, threads;
// every SM · converged warps. Counts as a participant of the next bar_sync on `barrier` and
// does not wait. Its earlier accesses are visible to the threads that sync.
KB_DEVICE void bar_arrive(uint32_t barrier, uint32_t threads);

// PTX: setmaxnreg.inc.sync.aligned.u32 kCount;
// sm_90a, sm_100a · every warp of a warpgroup, converged. kCount 24 … 256, a multiple of 8. Waits
// until the registers are free; the new ones are undefined.
template <uint32_t kCount>
KB_DEVICE void setmaxnreg_inc();

// PTX: setmaxnreg.dec.sync.aligned.u32 kCount;
// sm_90a, sm_100a · every warp of a warpgroup, converged. Gives registers above kCount back.
template <uint32_t kCount>
KB_DEVICE void setmaxnreg_dec();

// PTX: shfl.sync.bfly.b32 value|inside, value, mask, clamp, members;
// sm_30+ · exactly the lanes in `members`. The value (32 bits) of the lane `lane ^ mask`.
template <typename T>
KB_DEVICE T shfl_sync_bfly(T value, uint32_t mask, uint32_t members = kAllLanes);

// PTX: shfl.sync.idx.b32 value|inside, value, lane, clamp, members;
// sm_30+ · exactly the lanes in `members`. The value (32 bits) of `lane`.
template <typename T>
KB_DEVICE T shfl_sync_idx(T value, uint32_t lane, uint32_t members = kAllLanes);

// PTX: shfl.sync.up.b32 value|inside, value, delta, clamp, members;
// sm_30+ · exactly the lanes in `members`. The value (32 bits) of the lane `delta` below; its own
// where there is none.
template <typename T>
KB_DEVICE T shfl_sync_up(T value, uint32_t delta, uint32_t members = kAllLanes);

// PTX: vote.sync.ballot.b32 lanes, predicate, members;
// sm_30+ · exactly the lanes in `members`. Bit i: the predicate of lane i.
KB_DEVICE uint32_t vote_sync_ballot(bool predicate, uint32_t members = kAllLanes);

// PTX: vote.sync.any.pred any, predicate, members;
// sm_30+ · exactly the lanes in `members`.
KB_DEVICE bool vote_sync_any(bool predicate, uint32_t members = kAllLanes);

// PTX: redux.sync.max.u32 result, value, members;
// sm_80+ · exactly the lanes in `members`. The largest value, in every lane.
KB_DEVICE uint32_t redux_sync_max(uint32_t value, uint32_t members = kAllLanes);

// PTX: redux.sync.add.u32 result, value, members;
// sm_80+ · exactly the lanes in `members`. The sum modulo 2^32, in every lane.
KB_DEVICE uint32_t redux_sync_add(uint32_t value, uint32_t members = kAllLanes);

}  // namespace kb::ptx

#include "warp.inl"
