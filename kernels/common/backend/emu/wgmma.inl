#pragma once

#include "half_mma.inl"
#include "runtime/api_tensor.hpp"

namespace kb::ptx {

template <typename T>
KB_DEVICE void wgmma_fence() {
  emu::wgmma_fence();
}

template <int kCount, typename T>
KB_DEVICE void wgmma_fence(float (&)[kCount]) {
  emu::wgmma_fence();
}

template <typename T>
KB_DEVICE void wgmma_commit_group() {
  emu::wgmma_commit_group();
}

template <int kPending, typename T>
KB_DEVICE void wgmma_wait_group() {
  static_assert(kPending >= 0 && kPending <= 7, "0 … 7 groups");
  emu::wgmma_wait_group(kPending);
}

template <int kPending, int kCount, typename T>
KB_DEVICE void wgmma_wait_group(float (&)[kCount]) {
  static_assert(kPending >= 0 && kPending <= 7, "0 … 7 groups");
  emu::wgmma_wait_group(kPending);
}

namespace detail {

template <int kCount>
inline constexpr bool kAccumulators = kCount >= 4 && kCount <= 128 && kCount % 4 == 0;

}  // namespace detail

template <int kCount, typename T>
KB_DEVICE void wgmma_mma_async_f32_e4m3_e4m3(float (&d)[kCount], uint64_t a, uint64_t b,
                                             bool accumulate) {
  static_assert(detail::kAccumulators<kCount>, "4, 8, 12, … 128 accumulators");
  emu::wgmma_mma_async(emu::WgmmaKind::kE4m3, d, kCount, nullptr, a, b, accumulate);
}

template <int kCount, typename T>
KB_DEVICE void wgmma_mma_async_f32_e4m3_e4m3(float (&d)[kCount], const uint32_t (&a)[4], uint64_t b,
                                             bool accumulate) {
  static_assert(detail::kAccumulators<kCount>, "4, 8, 12, … 128 accumulators");
  emu::wgmma_mma_async(emu::WgmmaKind::kE4m3, d, kCount, a, 0, b, accumulate);
}

template <int kCount, typename T>
KB_DEVICE void wgmma_mma_async_f32_f16_f16(float (&d)[kCount], uint64_t a, uint64_t b,
                                           bool accumulate) {
  static_assert(detail::kAccumulators<kCount>, "4, 8, 12, … 128 accumulators");
  emu::wgmma_mma_async(emu::WgmmaKind::kF16, d, kCount, nullptr, a, b, accumulate);
}

template <int kCount, typename T>
KB_DEVICE void wgmma_mma_async_f32_f16_f16(float (&d)[kCount], const uint32_t (&a)[4], uint64_t b,
                                           bool accumulate) {
  static_assert(detail::kAccumulators<kCount>, "4, 8, 12, … 128 accumulators");
  emu::wgmma_mma_async(emu::WgmmaKind::kF16, d, kCount, a, 0, b, accumulate);
}

}  // namespace kb::ptx
