// sm_100a has no wgmma.
#pragma once

namespace kb::ptx {

template <typename T>
KB_DEVICE void wgmma_fence() {
  static_assert(kAbsent<T>, "wgmma_fence needs sm_90a");
}

template <int kCount, typename T>
KB_DEVICE void wgmma_fence(float (&d)[kCount]) {
  static_assert(kAbsent<T>, "wgmma_fence needs sm_90a");
}

template <typename T>
KB_DEVICE void wgmma_commit_group() {
  static_assert(kAbsent<T>, "wgmma_commit_group needs sm_90a");
}

template <int kPending, typename T>
KB_DEVICE void wgmma_wait_group() {
  static_assert(kAbsent<T>, "wgmma_wait_group needs sm_90a");
}

template <int kPending, int kCount, typename T>
KB_DEVICE void wgmma_wait_group(float (&d)[kCount]) {
  static_assert(kAbsent<T>, "wgmma_wait_group needs sm_90a");
}

template <int kCount, typename T>
KB_DEVICE void wgmma_mma_async_f32_e4m3_e4m3(float (&d)[kCount], uint64_t a, uint64_t b,
                                             bool accumulate) {
  static_assert(kAbsent<T>, "wgmma_mma_async_f32_e4m3_e4m3 needs sm_90a");
}

template <int kCount, typename T>
KB_DEVICE void wgmma_mma_async_f32_e4m3_e4m3(float (&d)[kCount], const uint32_t (&a)[4], uint64_t b,
                                             bool accumulate) {
  static_assert(kAbsent<T>, "wgmma_mma_async_f32_e4m3_e4m3 needs sm_90a");
}

template <int kCount, typename T>
KB_DEVICE void wgmma_mma_async_f32_f16_f16(float (&d)[kCount], uint64_t a, uint64_t b,
                                           bool accumulate) {
  static_assert(kAbsent<T>, "wgmma_mma_async_f32_f16_f16 needs sm_90a");
}

template <int kCount, typename T>
KB_DEVICE void wgmma_mma_async_f32_f16_f16(float (&d)[kCount], const uint32_t (&a)[4], uint64_t b,
                                           bool accumulate) {
  static_assert(kAbsent<T>, "wgmma_mma_async_f32_f16_f16 needs sm_90a");
}

}  // namespace kb::ptx
