// sm_90a has no tensor memory.
#pragma once

namespace kb::ptx {

template <int kCtas, typename T>
KB_DEVICE void tcgen05_alloc(CtaGroup<kCtas>, uint32_t* address, uint32_t columns) {
  static_assert(kAbsent<T>, "tcgen05_alloc needs sm_100a");
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_dealloc(CtaGroup<kCtas>, uint32_t tmem, uint32_t columns) {
  static_assert(kAbsent<T>, "tcgen05_dealloc needs sm_100a");
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_relinquish_alloc_permit(CtaGroup<kCtas>) {
  static_assert(kAbsent<T>, "tcgen05_relinquish_alloc_permit needs sm_100a");
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_cp_32x128b_warpx4(CtaGroup<kCtas>, uint32_t tmem, uint64_t source) {
  static_assert(kAbsent<T>, "tcgen05_cp_32x128b_warpx4 needs sm_100a");
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_mma_mxf4nvf4_block_scale_4x(CtaGroup<kCtas>, uint32_t d, uint64_t a,
                                                   uint64_t b, uint32_t instruction,
                                                   uint32_t scales_a, uint32_t scales_b,
                                                   bool accumulate) {
  static_assert(kAbsent<T>, "tcgen05_mma_mxf4nvf4_block_scale_4x needs sm_100a");
}

template <int kCtas, typename Collector, typename T>
KB_DEVICE void tcgen05_mma_mxf4nvf4_block_scale_4x(CtaGroup<kCtas>, Collector, uint32_t d,
                                                   uint64_t a, uint64_t b, uint32_t instruction,
                                                   uint32_t scales_a, uint32_t scales_b,
                                                   bool accumulate) {
  static_assert(kAbsent<T>, "tcgen05_mma_mxf4nvf4_block_scale_4x needs sm_100a");
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_commit(CtaGroup<kCtas>, Mbarrier* bar) {
  static_assert(kAbsent<T>, "tcgen05_commit needs sm_100a");
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_commit(CtaGroup<kCtas>, Mbarrier* bar, ClusterMask mask) {
  static_assert(kAbsent<T>, "tcgen05_commit needs sm_100a");
}

template <typename T>
KB_DEVICE void tcgen05_fence_before_thread_sync() {
  static_assert(kAbsent<T>, "tcgen05_fence_before_thread_sync needs sm_100a");
}

template <typename T>
KB_DEVICE void tcgen05_fence_after_thread_sync() {
  static_assert(kAbsent<T>, "tcgen05_fence_after_thread_sync needs sm_100a");
}

template <int kCount, typename T>
KB_DEVICE void tcgen05_ld_32x32b(uint32_t (&out)[kCount], uint32_t tmem) {
  static_assert(kAbsent<T>, "tcgen05_ld_32x32b needs sm_100a");
}

template <int kCount, typename T>
KB_DEVICE void tcgen05_ld_16x64b(uint32_t (&out)[kCount], uint32_t tmem) {
  static_assert(kAbsent<T>, "tcgen05_ld_16x64b needs sm_100a");
}

template <int kCount, typename T>
KB_DEVICE void tcgen05_ld_16x256b(uint32_t (&out)[kCount], uint32_t tmem) {
  static_assert(kAbsent<T>, "tcgen05_ld_16x256b needs sm_100a");
}

template <typename T>
KB_DEVICE void tcgen05_wait_ld() {
  static_assert(kAbsent<T>, "tcgen05_wait_ld needs sm_100a");
}

template <int kCount, typename T>
KB_DEVICE void tcgen05_wait_ld(uint32_t (&values)[kCount]) {
  static_assert(kAbsent<T>, "tcgen05_wait_ld needs sm_100a");
}

template <int kCount, typename T>
KB_DEVICE void tcgen05_st_32x32b(uint32_t tmem, const uint32_t (&in)[kCount]) {
  static_assert(kAbsent<T>, "tcgen05_st_32x32b needs sm_100a");
}

template <typename T>
KB_DEVICE void tcgen05_wait_st() {
  static_assert(kAbsent<T>, "tcgen05_wait_st needs sm_100a");
}

}  // namespace kb::ptx
