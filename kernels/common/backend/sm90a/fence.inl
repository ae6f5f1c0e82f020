#pragma once

#include "text.inl"

namespace kb::ptx {

KB_DEVICE void fence_mbarrier_init_release_cluster() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

template <typename Scope>
KB_DEVICE void fence(SemAcqRel, Scope) {
  asm volatile("fence.acq_rel.%0;" ::"C"(detail::Text<Scope>::kValue) : "memory");
}

template <typename Space>
KB_DEVICE void fence_proxy_async(Space) {
  asm volatile("fence.proxy.async.%0;" ::"C"(detail::Text<Space>::kValue) : "memory");
}

KB_DEVICE void fence_proxy_async() {
  asm volatile("fence.proxy.async;" ::: "memory");
}

KB_DEVICE void fence_proxy_async_generic_release_sync_restrict_shared_cta_cluster() {
  asm volatile("fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;" ::
                   : "memory");
}

KB_DEVICE void fence_proxy_async_generic_acquire_sync_restrict_shared_cluster_cluster() {
  asm volatile("fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;" ::
                   : "memory");
}

}  // namespace kb::ptx
