#pragma once

#include "../sm90a/tma_common.inl"

namespace kb::ptx {

template <typename T>
KB_DEVICE void cp_async_bulk_tensor_2d_shared_global(CtaGroup<2>, void* dst, const TensorMap* map,
                                                     int32_t x, int32_t y,
                                                     ClusterAddress<Mbarrier> bar) {
  // clang-format off
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile"
               ".mbarrier::complete_tx::bytes.cta_group::2 "
               "[%0], [%1, {%2, %3}], [%4];"
               :: "r"(smem_address(dst)), "l"(detail::generic_address(map)), "r"(x),
                  "r"(y), "r"(bar.bits) : "memory");
  // clang-format on
}

template <typename T>
KB_DEVICE void cp_async_bulk_tensor_3d_shared_global(CtaGroup<2>, void* dst, const TensorMap* map,
                                                     int32_t x, int32_t y, int32_t z,
                                                     ClusterAddress<Mbarrier> bar) {
  // clang-format off
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile"
               ".mbarrier::complete_tx::bytes.cta_group::2 "
               "[%0], [%1, {%2, %3, %4}], [%5];"
               :: "r"(smem_address(dst)), "l"(detail::generic_address(map)), "r"(x),
                  "r"(y), "r"(z), "r"(bar.bits) : "memory");
  // clang-format on
}

}  // namespace kb::ptx
