// Tensor Memory Accelerator: PTX ISA 9.1, 9.7.9 (cp.async.bulk, cp.async.bulk.tensor, prefetch,
// createpolicy). Copies are asynchronous, unordered among each other, and access memory through the
// async proxy: shared memory written by ordinary stores needs fence_proxy_async first.
//
// Loads: one thread. Completion takes the bytes of the whole box (zero-filled parts included) off
// the phase of `bar`; who acquires that phase sees the data without a fence. Coordinates count
// elements, x is the contiguous dimension; elements outside the tensor are read as zero.
// dst: 128-byte aligned, 1024 for the 128-byte swizzle. Plain copies: 16-byte aligned, bytes a
// multiple of 16.
// Stores: one thread. Their source must stay unchanged until that same thread has committed a
// group and waited for it; elements outside the tensor are not written; coordinates ≥ 0.
// Multicast: the same offsets of dst and bar in every CTA of the mask; each arms its own barrier.
#pragma once

#include "address.cuh"

namespace kb::ptx {

// PTX: cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [dst], [src], bytes, [bar];
// sm_90+ · one thread. `bytes` contiguous bytes.
KB_DEVICE void cp_async_bulk_shared_global(void* dst, const void* src, uint32_t bytes,
                                           Mbarrier* bar);

// PTX: cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint [dst], [src],
//      bytes, [bar], policy;
// sm_90+ · one thread.
KB_DEVICE void cp_async_bulk_shared_global(void* dst, const void* src, uint32_t bytes,
                                           Mbarrier* bar, CachePolicy policy);

// PTX: cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [dst],
//      [src], bytes, [bar], mask;
// sm_90+ · one thread of one CTA of the cluster.
KB_DEVICE void cp_async_bulk_shared_global(void* dst, const void* src, uint32_t bytes,
                                           Mbarrier* bar, ClusterMask mask);

// PTX: cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [dst], [src], bytes,
//      [bar];
// sm_90+ · one thread. To another CTA of the cluster; bar lies in the destination's CTA. The source
// must stay unchanged until that barrier's phase completes.
template <typename T>
KB_DEVICE void cp_async_bulk_shared_cluster_shared_cta(ClusterAddress<T> dst, const T* src,
                                                       uint32_t bytes,
                                                       ClusterAddress<Mbarrier> bar);

// PTX: cp.async.bulk.global.shared::cta.bulk_group [dst], [src], bytes;
// sm_90+ · one thread. Completion by group.
KB_DEVICE void cp_async_bulk_global_shared(void* dst, const void* src, uint32_t bytes);

// PTX: cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [dst], [src], bytes, policy;
// sm_90+ · one thread.
KB_DEVICE void cp_async_bulk_global_shared(void* dst, const void* src, uint32_t bytes,
                                           CachePolicy policy);

// PTX: cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [dst], [map,
//      {x, y}], [bar];
// sm_90+ · one thread.
KB_DEVICE void cp_async_bulk_tensor_2d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, Mbarrier* bar);

// PTX: cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint
//      [dst], [map, {x, y}], [bar], policy;
// sm_90+ · one thread.
KB_DEVICE void cp_async_bulk_tensor_2d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, Mbarrier* bar, CachePolicy policy);

// PTX: cp.async.bulk.tensor.2d.shared::cluster.global.tile
//      .mbarrier::complete_tx::bytes.multicast::cluster
//      [dst], [map, {x, y}], [bar], mask;
// sm_90+ · one thread of one CTA of the cluster.
KB_DEVICE void cp_async_bulk_tensor_2d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, Mbarrier* bar, ClusterMask mask);

// PTX: cp.async.bulk.tensor.2d.shared::cluster.global.tile
//      .mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint
//      [dst], [map, {x, y}], [bar], mask, policy;
// sm_90+ · one thread of one CTA of the cluster.
KB_DEVICE void cp_async_bulk_tensor_2d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, Mbarrier* bar, ClusterMask mask,
                                                     CachePolicy policy);

// PTX: cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes [dst], [map,
//      {x, y, z}], [bar];
// sm_90+ · one thread.
KB_DEVICE void cp_async_bulk_tensor_3d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, int32_t z, Mbarrier* bar);

// PTX: cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint
//      [dst], [map, {x, y, z}], [bar], policy;
// sm_90+ · one thread.
KB_DEVICE void cp_async_bulk_tensor_3d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, int32_t z, Mbarrier* bar,
                                                     CachePolicy policy);

// PTX: cp.async.bulk.tensor.3d.shared::cluster.global.tile
//      .mbarrier::complete_tx::bytes.multicast::cluster
//      [dst], [map, {x, y, z}], [bar], mask;
// sm_90+ · one thread of one CTA of the cluster.
KB_DEVICE void cp_async_bulk_tensor_3d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, int32_t z, Mbarrier* bar,
                                                     ClusterMask mask);

// PTX: cp.async.bulk.tensor.3d.shared::cluster.global.tile
//      .mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint
//      [dst], [map, {x, y, z}], [bar], mask, policy;
// sm_90+ · one thread of one CTA of the cluster.
KB_DEVICE void cp_async_bulk_tensor_3d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, int32_t z, Mbarrier* bar,
                                                     ClusterMask mask, CachePolicy policy);

// PTX: cp.async.bulk.tensor.4d.shared::cta.global.tile.mbarrier::complete_tx::bytes [dst], [map,
//      {x, y, z, w}], [bar];
// sm_90+ · one thread.
KB_DEVICE void cp_async_bulk_tensor_4d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, int32_t z, int32_t w,
                                                     Mbarrier* bar);

// PTX: cp.async.bulk.tensor.4d.shared::cta.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint
//      [dst], [map, {x, y, z, w}], [bar], policy;
// sm_90+ · one thread.
KB_DEVICE void cp_async_bulk_tensor_4d_shared_global(void* dst, const TensorMap* map, int32_t x,
                                                     int32_t y, int32_t z, int32_t w, Mbarrier* bar,
                                                     CachePolicy policy);

// PTX: cp.async.bulk.tensor.2d.shared::cluster.global.tile
//      .mbarrier::complete_tx::bytes.cta_group::2
//      [dst], [map, {x, y}], [bar];
// sm_100a · one thread. dst in this CTA; bar in this CTA or in its peer (ranks differ in bit 0).
template <typename T = Target>
KB_DEVICE void cp_async_bulk_tensor_2d_shared_global(CtaGroup<2>, void* dst, const TensorMap* map,
                                                     int32_t x, int32_t y,
                                                     ClusterAddress<Mbarrier> bar);

// PTX: cp.async.bulk.tensor.3d.shared::cluster.global.tile
//      .mbarrier::complete_tx::bytes.cta_group::2
//      [dst], [map, {x, y, z}], [bar];
// sm_100a · as above.
template <typename T = Target>
KB_DEVICE void cp_async_bulk_tensor_3d_shared_global(CtaGroup<2>, void* dst, const TensorMap* map,
                                                     int32_t x, int32_t y, int32_t z,
                                                     ClusterAddress<Mbarrier> bar);

// PTX: cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [map, {x, y}], [src];
// sm_90+ · one thread. Completion by group.
KB_DEVICE void cp_async_bulk_tensor_2d_global_shared(const TensorMap* map, int32_t x, int32_t y,
                                                     const void* src);

// PTX: cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint [map, {x, y}],
//      [src], policy;
// sm_90+ · one thread.
KB_DEVICE void cp_async_bulk_tensor_2d_global_shared(const TensorMap* map, int32_t x, int32_t y,
                                                     const void* src, CachePolicy policy);

// PTX: cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [map, {x, y, z}], [src];
// sm_90+ · one thread. Completion by group.
KB_DEVICE void cp_async_bulk_tensor_3d_global_shared(const TensorMap* map, int32_t x, int32_t y,
                                                     int32_t z, const void* src);

// PTX: cp.async.bulk.commit_group;
// sm_90+ · the thread that issued the stores. Makes a group of its stores since the last one.
KB_DEVICE void cp_async_bulk_commit_group();

// PTX: cp.async.bulk.wait_group kPending;
// sm_90+ · the thread that committed. Returns when at most kPending of its newest groups are
// incomplete: the writes of the others are done and visible to this thread.
template <uint32_t kPending>
KB_DEVICE void cp_async_bulk_wait_group();

// PTX: cp.async.bulk.wait_group.read kPending;
// sm_90+ · as above, but only until the sources (and tensor maps) have been read and may be reused.
template <uint32_t kPending>
KB_DEVICE void cp_async_bulk_wait_group_read();

// PTX: cp.async.bulk.prefetch.L2.global [src], bytes;
// sm_90+ · one thread. Hint: fetches into L2; 16-byte aligned, bytes a multiple of 16.
KB_DEVICE void cp_async_bulk_prefetch_l2_global(const void* src, uint32_t bytes);

// PTX: cp.async.bulk.prefetch.tensor.2d.L2.global.tile [map, {x, y}];
// sm_90+ · one thread. Hint: fetches the box into L2.
KB_DEVICE void cp_async_bulk_prefetch_tensor_2d_l2_global(const TensorMap* map, int32_t x,
                                                          int32_t y);

// PTX: prefetch.tensormap [map];
// sm_90+ · one thread. Hint: fetches the descriptor. Not for a map that the kernel modifies.
KB_DEVICE void prefetch_tensormap(const TensorMap* map);

// PTX: createpolicy.fractional.L2::evict_first.b64 policy, 1.0;
// sm_80+ · any thread. For data that is read once.
KB_DEVICE CachePolicy createpolicy_fractional_l2_evict_first();

// PTX: createpolicy.fractional.L2::evict_last.b64 policy, 1.0;
// sm_80+ · any thread. For data that is read again.
KB_DEVICE CachePolicy createpolicy_fractional_l2_evict_last();

}  // namespace kb::ptx

#include "tma.inl"
