#pragma once

#include "../sm90a/tma_common.inl"
#include "ptx/cluster.cuh"
#include "state.inl"

// sm_90a has no cta_group on copies. Its plain form takes the address of a barrier in the peer, and
// signals the one at that offset in the destination's own CTA (seen on an H200): only that case is
// the same.
namespace kb::soft {

KB_DEVICE void require_own_barrier(uint32_t address) {
  if (address >> 24 != ptx::cluster_ctarank()) fail(Fault::kPeerBarrier, address);
}

}  // namespace kb::soft

namespace kb::ptx {

template <typename T>
KB_DEVICE void cp_async_bulk_tensor_2d_shared_global(CtaGroup<2>, void* dst, const TensorMap* map,
                                                     int32_t x, int32_t y,
                                                     ClusterAddress<Mbarrier> bar) {
  soft::require_own_barrier(bar.bits);
  // clang-format off
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3}], [%4];"
               :: "r"(smem_address(dst)), "l"(detail::generic_address(map)), "r"(x), "r"(y),
                  "r"(bar.bits) : "memory");
  // clang-format on
}

template <typename T>
KB_DEVICE void cp_async_bulk_tensor_3d_shared_global(CtaGroup<2>, void* dst, const TensorMap* map,
                                                     int32_t x, int32_t y, int32_t z,
                                                     ClusterAddress<Mbarrier> bar) {
  soft::require_own_barrier(bar.bits);
  // clang-format off
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3, %4}], [%5];"
               :: "r"(smem_address(dst)), "l"(detail::generic_address(map)), "r"(x), "r"(y),
                  "r"(z), "r"(bar.bits) : "memory");
  // clang-format on
}

}  // namespace kb::ptx
