#pragma once

#include "tma_common.inl"

// A pair of CTAs shares a barrier on sm_100a only.
namespace kb::ptx {

template <typename T>
KB_DEVICE void cp_async_bulk_tensor_2d_shared_global(CtaGroup<2>, void* dst, const TensorMap* map,
                                                     int32_t x, int32_t y,
                                                     ClusterAddress<Mbarrier> bar) {
  static_assert(kAbsent<T>, "cp_async_bulk_tensor_2d_shared_global with cta_group_2 needs sm_100a");
}

template <typename T>
KB_DEVICE void cp_async_bulk_tensor_3d_shared_global(CtaGroup<2>, void* dst, const TensorMap* map,
                                                     int32_t x, int32_t y, int32_t z,
                                                     ClusterAddress<Mbarrier> bar) {
  static_assert(kAbsent<T>, "cp_async_bulk_tensor_3d_shared_global with cta_group_2 needs sm_100a");
}

}  // namespace kb::ptx
