#pragma once

#include "runtime/api_tma.hpp"

namespace kb::ptx {

KB_DEVICE void cp_async_bulk_shared_global(void* dst, const void* src, uint32_t bytes,
                                           Mbarrier* bar) {
  emu::bulk_load(dst, src, bytes, bar, emu::kNoMask);
}

KB_DEVICE void cp_async_bulk_shared_global(void* dst, const void* src, uint32_t bytes,
                                           Mbarrier* bar, CachePolicy policy) {
  emu::check_policy(policy.bits);
  emu::bulk_load(dst, src, bytes, bar, emu::kNoMask);
}

KB_DEVICE void cp_async_bulk_shared_global(void* dst, const void* src, uint32_t bytes,
                                           Mbarrier* bar, ClusterMask mask) {
  emu::bulk_load(dst, src, bytes, bar, mask.bits);
}

template <typename T>
KB_DEVICE void cp_async_bulk_shared_cluster_shared_cta(ClusterAddress<T> dst, const T* src,
                                                       uint32_t bytes,
                                                       ClusterAddress<Mbarrier> bar) {
  emu::bulk_copy_to_cluster(dst.bits, src, bytes, bar.bits);
}

KB_DEVICE void cp_async_bulk_global_shared(void* dst, const void* src, uint32_t bytes) {
  emu::bulk_store(dst, src, bytes);
}

KB_DEVICE void cp_async_bulk_global_shared(void* dst, const void* src, uint32_t bytes,
                                           CachePolicy policy) {
  emu::check_policy(policy.bits);
  emu::bulk_store(dst, src, bytes);
}

KB_DEVICE void cp_async_bulk_tensor_2d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, Mbarrier* bar) {
  emu::box_load(dst, map, {2, {x, y}}, bar, emu::kNoMask);
}

KB_DEVICE void cp_async_bulk_tensor_2d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, Mbarrier* bar, CachePolicy policy) {
  emu::check_policy(policy.bits);
  emu::box_load(dst, map, {2, {x, y}}, bar, emu::kNoMask);
}

KB_DEVICE void cp_async_bulk_tensor_2d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, Mbarrier* bar, ClusterMask mask) {
  emu::box_load(dst, map, {2, {x, y}}, bar, mask.bits);
}

KB_DEVICE void cp_async_bulk_tensor_2d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, Mbarrier* bar, ClusterMask mask,
                                                     CachePolicy policy) {
  emu::check_policy(policy.bits);
  emu::box_load(dst, map, {2, {x, y}}, bar, mask.bits);
}

KB_DEVICE void cp_async_bulk_tensor_3d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, int32_t z, Mbarrier* bar) {
  emu::box_load(dst, map, {3, {x, y, z}}, bar, emu::kNoMask);
}

KB_DEVICE void cp_async_bulk_tensor_3d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, int32_t z, Mbarrier* bar,
                                                     CachePolicy policy) {
  emu::check_policy(policy.bits);
  emu::box_load(dst, map, {3, {x, y, z}}, bar, emu::kNoMask);
}

KB_DEVICE void cp_async_bulk_tensor_3d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, int32_t z, Mbarrier* bar,
                                                     ClusterMask mask) {
  emu::box_load(dst, map, {3, {x, y, z}}, bar, mask.bits);
}

KB_DEVICE void cp_async_bulk_tensor_3d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, int32_t z, Mbarrier* bar,
                                                     ClusterMask mask, CachePolicy policy) {
  emu::check_policy(policy.bits);
  emu::box_load(dst, map, {3, {x, y, z}}, bar, mask.bits);
}

KB_DEVICE void cp_async_bulk_tensor_4d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, int32_t z, int32_t w,
                                                     Mbarrier* bar) {
  emu::box_load(dst, map, {4, {x, y, z, w}}, bar, emu::kNoMask);
}

KB_DEVICE void cp_async_bulk_tensor_4d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, int32_t z, int32_t w, Mbarrier* bar,
                                                     CachePolicy policy) {
  emu::check_policy(policy.bits);
  emu::box_load(dst, map, {4, {x, y, z, w}}, bar, emu::kNoMask);
}

template <typename T>
KB_DEVICE void cp_async_bulk_tensor_2d_shared_global(CtaGroup<2>, void* dst, const TensorMap* map,
                                                     int32_t x, int32_t y,
                                                     ClusterAddress<Mbarrier> bar) {
  emu::box_load_pair(dst, map, {2, {x, y}}, bar.bits);
}

template <typename T>
KB_DEVICE void cp_async_bulk_tensor_3d_shared_global(CtaGroup<2>, void* dst, const TensorMap* map,
                                                     int32_t x, int32_t y, int32_t z,
                                                     ClusterAddress<Mbarrier> bar) {
  emu::box_load_pair(dst, map, {3, {x, y, z}}, bar.bits);
}

KB_DEVICE void cp_async_bulk_tensor_2d_global_shared(const TensorMap* map, int32_t x, int32_t y,
                                                     const void* src) {
  emu::box_store(map, {2, {x, y}}, src);
}

KB_DEVICE void cp_async_bulk_tensor_2d_global_shared(const TensorMap* map, int32_t x, int32_t y,
                                                     const void* src, CachePolicy policy) {
  emu::check_policy(policy.bits);
  emu::box_store(map, {2, {x, y}}, src);
}

KB_DEVICE void cp_async_bulk_tensor_3d_global_shared(const TensorMap* map, int32_t x, int32_t y,
                                                     int32_t z, const void* src) {
  emu::box_store(map, {3, {x, y, z}}, src);
}

KB_DEVICE void cp_async_bulk_commit_group() {
  emu::bulk_commit_group();
}

template <uint32_t kPending>
KB_DEVICE void cp_async_bulk_wait_group() {
  emu::bulk_wait_group(kPending, false);
}

template <uint32_t kPending>
KB_DEVICE void cp_async_bulk_wait_group_read() {
  emu::bulk_wait_group(kPending, true);
}

KB_DEVICE void cp_async_bulk_prefetch_l2_global(const void* src, uint32_t bytes) {
  emu::bulk_prefetch(src, bytes);
}

KB_DEVICE void cp_async_bulk_prefetch_tensor_2d_l2_global(const TensorMap* map, int32_t x,
                                                          int32_t y) {
  emu::box_prefetch(map, {2, {x, y}});
}

KB_DEVICE void prefetch_tensormap(const TensorMap* map) {
  emu::prefetch_tensor_map(map);
}

// The values that the hardware's createpolicy returns for the whole fraction; hints only.
KB_DEVICE CachePolicy createpolicy_fractional_l2_evict_first() {
  return {0x12f0000000000000u};
}

KB_DEVICE CachePolicy createpolicy_fractional_l2_evict_last() {
  return {0x14f0000000000000u};
}

}  // namespace kb::ptx
