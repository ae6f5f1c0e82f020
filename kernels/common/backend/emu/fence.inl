#pragma once

#include "runtime/api_core.hpp"

namespace kb::ptx {

KB_DEVICE void fence_mbarrier_init_release_cluster() {
  emu::fence_mbarrier_init();
}

template <typename Scope>
KB_DEVICE void fence(SemAcqRel, Scope) {
  emu::fence_acq_rel(__is_same(Scope, ScopeCta)       ? emu::Scope::kCta
                     : __is_same(Scope, ScopeCluster) ? emu::Scope::kCluster
                                                      : emu::Scope::kGpu);
}

template <typename Space>
KB_DEVICE void fence_proxy_async(Space) {
  constexpr bool kGlobal = __is_same(Space, SpaceGlobal);
  emu::fence_proxy_async(!kGlobal, kGlobal);
}

KB_DEVICE void fence_proxy_async() {
  emu::fence_proxy_async(true, true);
}

// The pair orders reads of a slot with the next asynchronous write to it, which is a matter of the
// barriers between them here.
KB_DEVICE void fence_proxy_async_generic_release_sync_restrict_shared_cta_cluster() {
  emu::fence_proxy_async(true, false);
}

KB_DEVICE void fence_proxy_async_generic_acquire_sync_restrict_shared_cluster_cluster() {
  emu::fence_proxy_async(true, false);
}

}  // namespace kb::ptx
