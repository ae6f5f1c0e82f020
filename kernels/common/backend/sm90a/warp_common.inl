// What native code and the soft executor share: all but the grid's size and the register count.
#pragma once

namespace kb::ptx {

// Built-in variables and intrinsics where they exist: the compiler knows their ranges.
KB_DEVICE uint32_t thread_index() {
  return threadIdx.x;
}
KB_DEVICE uint32_t warp_index() {
  return threadIdx.x / 32;
}
KB_DEVICE CtaIndex cta_index() {
  return {blockIdx.x, blockIdx.y, blockIdx.z};
}

KB_DEVICE uint32_t lane_index() {
  uint32_t lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

KB_DEVICE bool elect_sync(uint32_t members) {
  uint32_t elected;
  // clang-format off
  asm volatile("{.reg .pred p; .reg .b32 lane; elect.sync lane|p, %1; selp.b32 %0, 1, 0, p;}"
               : "=r"(elected) : "r"(members) : "memory");
  // clang-format on
  return elected != 0;
}

KB_DEVICE void bar_warp_sync(uint32_t members) {
  __syncwarp(members);
}
KB_DEVICE void bar_sync() {
  __syncthreads();
}

KB_DEVICE void bar_sync(uint32_t barrier, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

KB_DEVICE void bar_arrive(uint32_t barrier, uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

template <typename T>
KB_DEVICE T shfl_sync_bfly(T value, uint32_t mask, uint32_t members) {
  static_assert(sizeof(T) == 4, "a 32-bit type");
  auto word = __builtin_bit_cast(uint32_t, value);  // const crashes nvcc 13.0
  return __builtin_bit_cast(T, __shfl_xor_sync(members, word, static_cast<int>(mask)));
}

template <typename T>
KB_DEVICE T shfl_sync_idx(T value, uint32_t lane, uint32_t members) {
  static_assert(sizeof(T) == 4, "a 32-bit type");
  auto word = __builtin_bit_cast(uint32_t, value);  // const crashes nvcc 13.0
  return __builtin_bit_cast(T, __shfl_sync(members, word, static_cast<int>(lane)));
}

template <typename T>
KB_DEVICE T shfl_sync_up(T value, uint32_t delta, uint32_t members) {
  static_assert(sizeof(T) == 4, "a 32-bit type");
  auto word = __builtin_bit_cast(uint32_t, value);  // const crashes nvcc 13.0
  return __builtin_bit_cast(T, __shfl_up_sync(members, word, delta));
}

KB_DEVICE uint32_t vote_sync_ballot(bool predicate, uint32_t members) {
  return __ballot_sync(members, predicate);
}

KB_DEVICE bool vote_sync_any(bool predicate, uint32_t members) {
  return __any_sync(members, predicate) != 0;
}

KB_DEVICE uint32_t redux_sync_max(uint32_t value, uint32_t members) {
  return __reduce_max_sync(members, value);
}

KB_DEVICE uint32_t redux_sync_add(uint32_t value, uint32_t members) {
  return __reduce_add_sync(members, value);
}

}  // namespace kb::ptx
