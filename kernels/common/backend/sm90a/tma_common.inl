#pragma once

namespace kb::ptx {

KB_DEVICE void cp_async_bulk_shared_global(void* dst, const void* src, uint32_t bytes,
                                           Mbarrier* bar) {
  // clang-format off
  asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes "
               "[%0], [%1], %2, [%3];"
               :: "r"(smem_address(dst)), "l"(detail::global_address(src)), "r"(bytes),
                  "r"(smem_address(bar)) : "memory");
  // clang-format on
}

KB_DEVICE void cp_async_bulk_shared_global(void* dst, const void* src, uint32_t bytes,
                                           Mbarrier* bar, CachePolicy policy) {
  // clang-format off
  asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1], %2, [%3], %4;"
               :: "r"(smem_address(dst)), "l"(detail::global_address(src)), "r"(bytes),
                  "r"(smem_address(bar)), "l"(policy.bits) : "memory");
  // clang-format on
}

KB_DEVICE void cp_async_bulk_shared_global(void* dst, const void* src, uint32_t bytes,
                                           Mbarrier* bar, ClusterMask mask) {
  // clang-format off
  asm volatile("cp.async.bulk.shared::cluster.global"
               ".mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1], %2, [%3], %4;"
               :: "r"(smem_address(dst)), "l"(detail::global_address(src)), "r"(bytes),
                  "r"(smem_address(bar)), "h"(mask.bits) : "memory");
  // clang-format on
}

template <typename T>
KB_DEVICE void cp_async_bulk_shared_cluster_shared_cta(ClusterAddress<T> dst, const T* src,
                                                       uint32_t bytes,
                                                       ClusterAddress<Mbarrier> bar) {
  // clang-format off
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
               "[%0], [%1], %2, [%3];"
               :: "r"(dst.bits), "r"(smem_address(src)), "r"(bytes), "r"(bar.bits) : "memory");
  // clang-format on
}

KB_DEVICE void cp_async_bulk_global_shared(void* dst, const void* src, uint32_t bytes) {
  // clang-format off
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group "
               "[%0], [%1], %2;"
               :: "l"(detail::global_address(dst)), "r"(smem_address(src)), "r"(bytes) : "memory");
  // clang-format on
}

KB_DEVICE void cp_async_bulk_global_shared(void* dst, const void* src, uint32_t bytes,
                                           CachePolicy policy) {
  // clang-format off
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint "
               "[%0], [%1], %2, %3;"
               :: "l"(detail::global_address(dst)), "r"(smem_address(src)), "r"(bytes),
                  "l"(policy.bits) : "memory");
  // clang-format on
}

KB_DEVICE void cp_async_bulk_tensor_2d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, Mbarrier* bar) {
  // clang-format off
  asm volatile("cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3}], [%4];"
               :: "r"(smem_address(dst)), "l"(detail::generic_address(map)), "r"(x),
                  "r"(y), "r"(smem_address(bar)) : "memory");
  // clang-format on
}

KB_DEVICE void cp_async_bulk_tensor_2d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, Mbarrier* bar, CachePolicy policy) {
  // clang-format off
  asm volatile("cp.async.bulk.tensor.2d.shared::cta.global.tile"
               ".mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1, {%2, %3}], [%4], %5;"
               :: "r"(smem_address(dst)), "l"(detail::generic_address(map)), "r"(x),
                  "r"(y), "r"(smem_address(bar)), "l"(policy.bits) : "memory");
  // clang-format on
}

KB_DEVICE void cp_async_bulk_tensor_2d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, Mbarrier* bar, ClusterMask mask) {
  // clang-format off
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile"
               ".mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%2, %3}], [%4], %5;"
               :: "r"(smem_address(dst)), "l"(detail::generic_address(map)), "r"(x),
                  "r"(y), "r"(smem_address(bar)), "h"(mask.bits) : "memory");
  // clang-format on
}

KB_DEVICE void cp_async_bulk_tensor_2d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, Mbarrier* bar, ClusterMask mask,
                                                     CachePolicy policy) {
  // clang-format off
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile"
               ".mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
               "[%0], [%1, {%2, %3}], [%4], %5, %6;"
               :: "r"(smem_address(dst)), "l"(detail::generic_address(map)), "r"(x),
                  "r"(y), "r"(smem_address(bar)), "h"(mask.bits), "l"(policy.bits) : "memory");
  // clang-format on
}

KB_DEVICE void cp_async_bulk_tensor_3d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, int32_t z, Mbarrier* bar) {
  // clang-format off
  asm volatile("cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3, %4}], [%5];"
               :: "r"(smem_address(dst)), "l"(detail::generic_address(map)), "r"(x),
                  "r"(y), "r"(z), "r"(smem_address(bar)) : "memory");
  // clang-format on
}

KB_DEVICE void cp_async_bulk_tensor_3d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, int32_t z, Mbarrier* bar,
                                                     CachePolicy policy) {
  // clang-format off
  asm volatile("cp.async.bulk.tensor.3d.shared::cta.global.tile"
               ".mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1, {%2, %3, %4}], [%5], %6;"
               :: "r"(smem_address(dst)), "l"(detail::generic_address(map)), "r"(x),
                  "r"(y), "r"(z), "r"(smem_address(bar)), "l"(policy.bits) : "memory");
  // clang-format on
}

KB_DEVICE void cp_async_bulk_tensor_3d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, int32_t z, Mbarrier* bar,
                                                     ClusterMask mask) {
  // clang-format off
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile"
               ".mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%2, %3, %4}], [%5], %6;"
               :: "r"(smem_address(dst)), "l"(detail::generic_address(map)), "r"(x),
                  "r"(y), "r"(z), "r"(smem_address(bar)), "h"(mask.bits) : "memory");
  // clang-format on
}

KB_DEVICE void cp_async_bulk_tensor_3d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, int32_t z, Mbarrier* bar,
                                                     ClusterMask mask, CachePolicy policy) {
  // clang-format off
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile"
               ".mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
               "[%0], [%1, {%2, %3, %4}], [%5], %6, %7;"
               :: "r"(smem_address(dst)), "l"(detail::generic_address(map)), "r"(x),
                  "r"(y), "r"(z), "r"(smem_address(bar)), "h"(mask.bits), "l"(policy.bits)
               : "memory");
  // clang-format on
}

KB_DEVICE void cp_async_bulk_tensor_4d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, int32_t z, int32_t w,
                                                     Mbarrier* bar) {
  // clang-format off
  asm volatile("cp.async.bulk.tensor.4d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3, %4, %5}], [%6];"
               :: "r"(smem_address(dst)), "l"(detail::generic_address(map)), "r"(x),
                  "r"(y), "r"(z), "r"(w), "r"(smem_address(bar)) : "memory");
  // clang-format on
}

KB_DEVICE void cp_async_bulk_tensor_4d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, int32_t z, int32_t w, Mbarrier* bar,
                                                     CachePolicy policy) {
  // clang-format off
  asm volatile("cp.async.bulk.tensor.4d.shared::cta.global.tile"
               ".mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;"
               :: "r"(smem_address(dst)), "l"(detail::generic_address(map)), "r"(x),
                  "r"(y), "r"(z), "r"(w), "r"(smem_address(bar)), "l"(policy.bits) : "memory");
  // clang-format on
}

KB_DEVICE void cp_async_bulk_tensor_2d_global_shared(const TensorMap* map, int32_t x, int32_t y,
                                                     const void* src) {
  // clang-format off
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group "
               "[%0, {%1, %2}], [%3];"
               :: "l"(detail::generic_address(map)), "r"(x), "r"(y),
                  "r"(smem_address(src)) : "memory");
  // clang-format on
}

KB_DEVICE void cp_async_bulk_tensor_2d_global_shared(const TensorMap* map, int32_t x, int32_t y,
                                                     const void* src, CachePolicy policy) {
  // clang-format off
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint "
               "[%0, {%1, %2}], [%3], %4;"
               :: "l"(detail::generic_address(map)), "r"(x), "r"(y),
                  "r"(smem_address(src)), "l"(policy.bits) : "memory");
  // clang-format on
}

KB_DEVICE void cp_async_bulk_tensor_3d_global_shared(const TensorMap* map, int32_t x, int32_t y,
                                                     int32_t z, const void* src) {
  // clang-format off
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group "
               "[%0, {%1, %2, %3}], [%4];"
               :: "l"(detail::generic_address(map)), "r"(x), "r"(y),
                  "r"(z), "r"(smem_address(src)) : "memory");
  // clang-format on
}

KB_DEVICE void cp_async_bulk_commit_group() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

template <uint32_t kPending>
KB_DEVICE void cp_async_bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

template <uint32_t kPending>
KB_DEVICE void cp_async_bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

KB_DEVICE void cp_async_bulk_prefetch_l2_global(const void* src, uint32_t bytes) {
  // clang-format off
  asm volatile("cp.async.bulk.prefetch.L2.global "
               "[%0], %1;"
               :: "l"(detail::global_address(src)), "r"(bytes) : "memory");
  // clang-format on
}

KB_DEVICE void cp_async_bulk_prefetch_tensor_2d_l2_global(const TensorMap* map, int32_t x,
                                                          int32_t y) {
  // clang-format off
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile "
               "[%0, {%1, %2}];"
               :: "l"(detail::generic_address(map)), "r"(x), "r"(y) : "memory");
  // clang-format on
}

KB_DEVICE void prefetch_tensormap(const TensorMap* map) {
  // clang-format off
  asm volatile("prefetch.tensormap "
               "[%0];"
               :: "l"(detail::generic_address(map)) : "memory");
  // clang-format on
}

KB_DEVICE CachePolicy createpolicy_fractional_l2_evict_first() {
  CachePolicy policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy.bits));
  return policy;
}

KB_DEVICE CachePolicy createpolicy_fractional_l2_evict_last() {
  CachePolicy policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy.bits));
  return policy;
}

}  // namespace kb::ptx
