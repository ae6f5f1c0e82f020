// Everything is done when its call returns: a commit has only to make it visible and to arrive, and
// the fences order what threads do.
#pragma once

#include "mma.inl"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"

namespace kb::ptx {

namespace detail {

KB_HOST_DEVICE constexpr bool is_power_of_two(int count) {
  return count > 0 && (count & (count - 1)) == 0;
}

}  // namespace detail

template <int kCtas, typename T>
KB_DEVICE void tcgen05_alloc(CtaGroup<kCtas>, uint32_t* address, uint32_t columns) {
  soft::allocate(address, columns);
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_dealloc(CtaGroup<kCtas>, uint32_t tmem, uint32_t columns) {
  soft::deallocate(tmem, columns);
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_relinquish_alloc_permit(CtaGroup<kCtas>) {
  soft::relinquish();
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_cp_32x128b_warpx4(CtaGroup<kCtas>, uint32_t tmem, uint64_t source) {
  soft::copy_scales<kCtas>(tmem, source);
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_mma_mxf4nvf4_block_scale_4x(CtaGroup<kCtas>, uint32_t d, uint64_t a,
                                                   uint64_t b, uint32_t instruction,
                                                   uint32_t scales_a, uint32_t scales_b,
                                                   bool accumulate) {
  soft::product<kCtas>(d, a, b, instruction, scales_a, scales_b, accumulate);
}

template <int kCtas, typename Collector, typename T>
KB_DEVICE void tcgen05_mma_mxf4nvf4_block_scale_4x(CtaGroup<kCtas>, Collector, uint32_t d,
                                                   uint64_t a, uint64_t b, uint32_t instruction,
                                                   uint32_t scales_a, uint32_t scales_b,
                                                   bool accumulate) {
  soft::product<kCtas>(d, a, b, instruction, scales_a, scales_b, accumulate);
}

// The proxy fence: shared memory that has been read may be overwritten by a copy.
template <int kCtas, typename T>
KB_DEVICE void tcgen05_commit(CtaGroup<kCtas>, Mbarrier* bar) {
  soft::check_one_lane();
  __threadfence();
  fence_proxy_async();
  mbarrier_arrive(sem_release, scope_cluster, bar);
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_commit(CtaGroup<kCtas>, Mbarrier* bar, ClusterMask mask) {
  soft::check_one_lane();
  __threadfence();
  fence_proxy_async();
  for (uint32_t rank = 0; rank < cluster_nctarank(); ++rank) {
    if ((mask.bits >> rank & 1) != 0) {
      mbarrier_arrive(sem_release, scope_cluster, mapa(bar, rank));
    }
  }
}

template <typename T>
KB_DEVICE void tcgen05_fence_before_thread_sync() {
  __threadfence();
}

template <typename T>
KB_DEVICE void tcgen05_fence_after_thread_sync() {
  __threadfence();
}

template <int kCount, typename T>
KB_DEVICE void tcgen05_ld_32x32b(uint32_t (&out)[kCount], uint32_t tmem) {
  static_assert(detail::is_power_of_two(kCount) && kCount <= 128, "1, 2, 4, … 128 registers");
  soft::load<soft::Shape32x32b>(out, tmem);
}

template <int kCount, typename T>
KB_DEVICE void tcgen05_ld_16x64b(uint32_t (&out)[kCount], uint32_t tmem) {
  static_assert(detail::is_power_of_two(kCount) && kCount <= 128, "1, 2, 4, … 128 registers");
  soft::load<soft::Shape16x64b>(out, tmem);
}

template <int kCount, typename T>
KB_DEVICE void tcgen05_ld_16x256b(uint32_t (&out)[kCount], uint32_t tmem) {
  static_assert(detail::is_power_of_two(kCount) && kCount >= 4 && kCount <= 128,
                "4, 8, … 128 registers");
  soft::load<soft::Shape16x256b>(out, tmem);
}

template <typename T>
KB_DEVICE void tcgen05_wait_ld() {
  __syncwarp();
}

template <int kCount, typename T>
KB_DEVICE void tcgen05_wait_ld(uint32_t (&)[kCount]) {
  __syncwarp();
}

template <int kCount, typename T>
KB_DEVICE void tcgen05_st_32x32b(uint32_t tmem, const uint32_t (&in)[kCount]) {
  static_assert(detail::is_power_of_two(kCount) && kCount <= 128, "1, 2, 4, … 128 registers");
  soft::store<soft::Shape32x32b>(tmem, in);
}

template <typename T>
KB_DEVICE void tcgen05_wait_st() {
  __threadfence();
  __syncwarp();
}

}  // namespace kb::ptx
