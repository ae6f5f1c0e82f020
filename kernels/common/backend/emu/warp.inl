#pragma once

#include "runtime/api_core.hpp"

namespace kb::ptx {

KB_DEVICE uint32_t thread_index() {
  return emu::thread_index();
}
KB_DEVICE uint32_t warp_index() {
  return emu::thread_index() / 32;
}
KB_DEVICE uint32_t lane_index() {
  return emu::thread_index() % 32;
}
KB_DEVICE CtaIndex cta_index() {
  return emu::cta_index();
}
KB_DEVICE CtaIndex cta_count() {
  return emu::cta_count();
}

KB_DEVICE bool elect_sync(uint32_t members) {
  return emu::elect_sync(members) != 0;
}

KB_DEVICE void bar_warp_sync(uint32_t members) {
  emu::bar_warp_sync(members);
}
KB_DEVICE void bar_sync() {
  emu::bar_sync_all();
}
KB_DEVICE void bar_sync(uint32_t barrier, uint32_t threads) {
  emu::bar_sync(barrier, threads);
}
KB_DEVICE void bar_arrive(uint32_t barrier, uint32_t threads) {
  emu::bar_arrive(barrier, threads);
}

template <uint32_t kCount>
KB_DEVICE void setmaxnreg_inc() {
  static_assert(kCount >= 24 && kCount <= 256 && kCount % 8 == 0, "24 … 256, a multiple of 8");
  emu::setmaxnreg(kCount, true);
}

template <uint32_t kCount>
KB_DEVICE void setmaxnreg_dec() {
  static_assert(kCount >= 24 && kCount <= 256 && kCount % 8 == 0, "24 … 256, a multiple of 8");
  emu::setmaxnreg(kCount, false);
}

template <typename T>
KB_DEVICE T shfl_sync_bfly(T value, uint32_t mask, uint32_t members) {
  static_assert(sizeof(T) == 4, "a 32-bit type");
  return __builtin_bit_cast(
      T, emu::shfl(emu::Shuffle::kXor, __builtin_bit_cast(uint32_t, value), mask, members));
}

template <typename T>
KB_DEVICE T shfl_sync_idx(T value, uint32_t lane, uint32_t members) {
  static_assert(sizeof(T) == 4, "a 32-bit type");
  return __builtin_bit_cast(
      T, emu::shfl(emu::Shuffle::kIndex, __builtin_bit_cast(uint32_t, value), lane, members));
}

template <typename T>
KB_DEVICE T shfl_sync_up(T value, uint32_t delta, uint32_t members) {
  static_assert(sizeof(T) == 4, "a 32-bit type");
  return __builtin_bit_cast(
      T, emu::shfl(emu::Shuffle::kUp, __builtin_bit_cast(uint32_t, value), delta, members));
}

KB_DEVICE uint32_t vote_sync_ballot(bool predicate, uint32_t members) {
  return emu::vote_ballot(predicate, members);
}
KB_DEVICE bool vote_sync_any(bool predicate, uint32_t members) {
  return emu::vote_ballot(predicate, members) != 0;
}
KB_DEVICE uint32_t redux_sync_max(uint32_t value, uint32_t members) {
  return emu::redux_max(value, members);
}
KB_DEVICE uint32_t redux_sync_add(uint32_t value, uint32_t members) {
  return emu::redux_add(value, members);
}

}  // namespace kb::ptx
