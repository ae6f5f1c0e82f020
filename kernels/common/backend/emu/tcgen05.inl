#pragma once

#include "runtime/api_tensor.hpp"

namespace kb::ptx {

template <int kCtas, typename T>
KB_DEVICE void tcgen05_alloc(CtaGroup<kCtas>, uint32_t* address, uint32_t columns) {
  emu::tcgen05_alloc(kCtas, address, columns);
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_dealloc(CtaGroup<kCtas>, uint32_t tmem, uint32_t columns) {
  emu::tcgen05_dealloc(kCtas, tmem, columns);
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_relinquish_alloc_permit(CtaGroup<kCtas>) {
  emu::tcgen05_relinquish_alloc_permit(kCtas);
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_cp_32x128b_warpx4(CtaGroup<kCtas>, uint32_t tmem, uint64_t source) {
  emu::tcgen05_cp_32x128b_warpx4(kCtas, tmem, source);
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_mma_mxf4nvf4_block_scale_4x(CtaGroup<kCtas>, uint32_t d, uint64_t a,
                                                   uint64_t b, uint32_t instruction,
                                                   uint32_t scales_a, uint32_t scales_b,
                                                   bool accumulate) {
  emu::tcgen05_mma_fp4(kCtas, 4, d, a, b, instruction, scales_a, scales_b, accumulate);
}

// The collector is a hint.
template <int kCtas, typename Collector, typename T>
KB_DEVICE void tcgen05_mma_mxf4nvf4_block_scale_4x(CtaGroup<kCtas>, Collector, uint32_t d,
                                                   uint64_t a, uint64_t b, uint32_t instruction,
                                                   uint32_t scales_a, uint32_t scales_b,
                                                   bool accumulate) {
  emu::tcgen05_mma_fp4(kCtas, 4, d, a, b, instruction, scales_a, scales_b, accumulate);
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_commit(CtaGroup<kCtas>, Mbarrier* bar) {
  emu::tcgen05_commit(kCtas, bar, false, 0);
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_commit(CtaGroup<kCtas>, Mbarrier* bar, ClusterMask mask) {
  emu::tcgen05_commit(kCtas, bar, true, mask.bits);
}

template <typename T>
KB_DEVICE void tcgen05_fence_before_thread_sync() {
  emu::tcgen05_fence_before_thread_sync();
}

template <typename T>
KB_DEVICE void tcgen05_fence_after_thread_sync() {
  emu::tcgen05_fence_after_thread_sync();
}

namespace detail {

constexpr bool is_power_of_two(int count) {
  return count > 0 && (count & (count - 1)) == 0;
}

}  // namespace detail

template <int kCount, typename T>
KB_DEVICE void tcgen05_ld_32x32b(uint32_t (&out)[kCount], uint32_t tmem) {
  static_assert(detail::is_power_of_two(kCount) && kCount <= 128, "1, 2, 4, … 128 registers");
  emu::tcgen05_ld(emu::TmemShape::k32x32b, out, kCount, tmem);
}

template <int kCount, typename T>
KB_DEVICE void tcgen05_ld_16x64b(uint32_t (&out)[kCount], uint32_t tmem) {
  static_assert(detail::is_power_of_two(kCount) && kCount <= 128, "1, 2, 4, … 128 registers");
  emu::tcgen05_ld(emu::TmemShape::k16x64b, out, kCount, tmem);
}

template <int kCount, typename T>
KB_DEVICE void tcgen05_ld_16x256b(uint32_t (&out)[kCount], uint32_t tmem) {
  static_assert(detail::is_power_of_two(kCount) && kCount >= 4 && kCount <= 128,
                "4, 8, … 128 registers");
  emu::tcgen05_ld(emu::TmemShape::k16x256b, out, kCount, tmem);
}

template <typename T>
KB_DEVICE void tcgen05_wait_ld() {
  emu::tcgen05_wait_ld();
}

template <int kCount, typename T>
KB_DEVICE void tcgen05_wait_ld(uint32_t (&)[kCount]) {
  emu::tcgen05_wait_ld();
}

template <int kCount, typename T>
KB_DEVICE void tcgen05_st_32x32b(uint32_t tmem, const uint32_t (&in)[kCount]) {
  static_assert(detail::is_power_of_two(kCount) && kCount <= 128, "1, 2, 4, … 128 registers");
  emu::tcgen05_st(emu::TmemShape::k32x32b, tmem, in, kCount);
}

template <typename T>
KB_DEVICE void tcgen05_wait_st() {
  emu::tcgen05_wait_st();
}

}  // namespace kb::ptx
