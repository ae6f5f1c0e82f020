// Fences: PTX ISA 9.1, 9.7.13 (membar/fence). Each orders the accesses of the thread that executes
// it; other threads are reached only through a barrier or another release/acquire pair after it.
#pragma once

#include "types.cuh"

namespace kb::ptx {

// PTX: fence.mbarrier_init.release.cluster;
// sm_90+ · the thread that initialized the barriers. Orders its mbarrier.init before what follows a
// later cluster barrier in the other CTAs. Orders nothing else.
KB_DEVICE void fence_mbarrier_init_release_cluster();

// PTX: fence.acq_rel.<cta|cluster|gpu>;
// sm_70+ (cluster: sm_90+) · any thread. Orders generic accesses before it with those after it, at
// the scope. Does not order the async or the tensormap proxy.
template <typename Scope>
KB_DEVICE void fence(SemAcqRel, Scope);

// PTX: fence.proxy.async.<shared::cta|shared::cluster|global>;
// sm_90+ · every thread that wrote (or read, where a copy will overwrite) the memory, before the
// synchronization after which one thread starts the asynchronous operation. Orders its generic
// accesses to the space with later async-proxy accesses (TMA, wgmma, tcgen05). Not needed
// after waiting on a copy's mbarrier or group.
template <typename Space>
KB_DEVICE void fence_proxy_async(Space);

// PTX: fence.proxy.async;
// sm_90+ · as above, for shared and global memory.
KB_DEVICE void fence_proxy_async();

// PTX: fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;
// sm_90+ · a thread that has read the CTA's shared memory, before it arrives on the
// barrier that lets another CTA's thread start an asynchronous write to it.
KB_DEVICE void fence_proxy_async_generic_release_sync_restrict_shared_cta_cluster();

// PTX: fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;
// sm_90+ · the thread that starts the write, after the wait that pairs with the release above.
KB_DEVICE void fence_proxy_async_generic_acquire_sync_restrict_shared_cluster_cluster();

}  // namespace kb::ptx

#include "fence.inl"
