// Functions that only sm_100a has.
#include "every_function.cuh"
#include "ptx/clc.cuh"
#include "ptx/tcgen05.cuh"
#include "ptx/tma.cuh"

using ptx::cta_group_1;
using ptx::cta_group_2;

EVERY(cp_async_bulk_tensor_2d_shared_global) {
  ptx::cp_async_bulk_tensor_2d_shared_global(cta_group_2, a.shared, a.map, a.x, a.y, a.remote_bar);
}
EVERY(cp_async_bulk_tensor_3d_shared_global) {
  ptx::cp_async_bulk_tensor_3d_shared_global(cta_group_2, a.shared, a.map, a.x, a.y, a.z,
                                             a.remote_bar);
}

EVERY(clusterlaunchcontrol_try_cancel) {
  ptx::clusterlaunchcontrol_try_cancel(a.response, a.bar);
}
EVERY(clusterlaunchcontrol_try_cancel_multicast_cluster_all) {
  ptx::clusterlaunchcontrol_try_cancel_multicast_cluster_all(a.response, a.bar);
}
EVERY(clusterlaunchcontrol_query_cancel_is_canceled) {
  *a.out = ptx::clusterlaunchcontrol_query_cancel_is_canceled(a.response);
}
EVERY(clusterlaunchcontrol_query_cancel_get_first_ctaid) {
  *reinterpret_cast<kb::CtaIndex*>(a.out) =
      ptx::clusterlaunchcontrol_query_cancel_get_first_ctaid(a.response);
}

// ptxas refuses both groups in one kernel.
EVERY(tcgen05_alloc) {
  ptx::tcgen05_alloc(cta_group_1, a.out, a.u);
}
EVERY(tcgen05_alloc__2) {
  ptx::tcgen05_alloc(cta_group_2, a.out, a.u);
}
EVERY(tcgen05_dealloc) {
  ptx::tcgen05_dealloc(cta_group_1, a.u, a.v);
}
EVERY(tcgen05_dealloc__2) {
  ptx::tcgen05_dealloc(cta_group_2, a.u, a.v);
}
EVERY(tcgen05_relinquish_alloc_permit) {
  ptx::tcgen05_relinquish_alloc_permit(cta_group_1);
}
EVERY(tcgen05_relinquish_alloc_permit__2) {
  ptx::tcgen05_relinquish_alloc_permit(cta_group_2);
}
EVERY(tcgen05_cp_32x128b_warpx4) {
  ptx::tcgen05_cp_32x128b_warpx4(cta_group_1, a.u, a.a);
}
EVERY(tcgen05_cp_32x128b_warpx4__2) {
  ptx::tcgen05_cp_32x128b_warpx4(cta_group_2, a.u, a.a);
}

template <int kCtas>
KB_DEVICE void mma(const Arguments& a) {
  constexpr ptx::CtaGroup<kCtas> group;
  const uint32_t scales = a.w + 4;
  ptx::tcgen05_mma_mxf4nvf4_block_scale_4x(group, a.u, a.a, a.b, a.v, a.w, scales, a.x != 0);
  ptx::tcgen05_mma_mxf4nvf4_block_scale_4x(group, ptx::collector_a_fill, a.u, a.a, a.b, a.v, a.w,
                                           scales, true);
  ptx::tcgen05_mma_mxf4nvf4_block_scale_4x(group, ptx::collector_a_use, a.u, a.a, a.b, a.v, a.w,
                                           scales, true);
  ptx::tcgen05_mma_mxf4nvf4_block_scale_4x(group, ptx::collector_a_lastuse, a.u, a.a, a.b, a.v, a.w,
                                           scales, true);
  ptx::tcgen05_mma_mxf4nvf4_block_scale_4x(group, ptx::collector_a_discard, a.u, a.a, a.b, a.v, a.w,
                                           scales, false);
}
EVERY(tcgen05_mma_mxf4nvf4_block_scale_4x) {
  mma<1>(a);
}
EVERY(tcgen05_mma_mxf4nvf4_block_scale_4x__2) {
  mma<2>(a);
}

EVERY(tcgen05_commit) {
  ptx::tcgen05_commit(cta_group_1, a.bar);
  ptx::tcgen05_commit(cta_group_1, a.bar, a.mask);
}
EVERY(tcgen05_commit__2) {
  ptx::tcgen05_commit(cta_group_2, a.bar);
  ptx::tcgen05_commit(cta_group_2, a.bar, a.mask);
}
EVERY(tcgen05_fence_before_thread_sync) {
  ptx::tcgen05_fence_before_thread_sync();
}
EVERY(tcgen05_fence_after_thread_sync) {
  ptx::tcgen05_fence_after_thread_sync();
}
EVERY(tcgen05_wait_ld) {
  ptx::tcgen05_wait_ld();
}
EVERY(tcgen05_wait_st) {
  ptx::tcgen05_wait_st();
}

template <int kCount>
KB_DEVICE void store(const Arguments& a, const uint32_t (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) a.out[i] = values[i];
}

template <int kCount>
KB_DEVICE void ld_32x32b(const Arguments& a) {
  uint32_t values[kCount];
  ptx::tcgen05_ld_32x32b(values, a.u);
  ptx::tcgen05_wait_ld(values);
  store(a, values);
}
EVERY(tcgen05_ld_32x32b) {
  ld_32x32b<1>(a);
  ld_32x32b<2>(a);
  ld_32x32b<4>(a);
  ld_32x32b<8>(a);
  ld_32x32b<16>(a);
  ld_32x32b<32>(a);
  ld_32x32b<64>(a);
  ld_32x32b<128>(a);
}

template <int kCount>
KB_DEVICE void ld_16x64b(const Arguments& a) {
  uint32_t values[kCount];
  ptx::tcgen05_ld_16x64b(values, a.u);
  ptx::tcgen05_wait_ld(values);
  store(a, values);
}
EVERY(tcgen05_ld_16x64b) {
  ld_16x64b<1>(a);
  ld_16x64b<2>(a);
  ld_16x64b<4>(a);
  ld_16x64b<8>(a);
  ld_16x64b<16>(a);
  ld_16x64b<32>(a);
  ld_16x64b<64>(a);
  ld_16x64b<128>(a);
}

template <int kCount>
KB_DEVICE void ld_16x256b(const Arguments& a) {
  uint32_t values[kCount];
  ptx::tcgen05_ld_16x256b(values, a.u);
  ptx::tcgen05_wait_ld(values);
  store(a, values);
}
EVERY(tcgen05_ld_16x256b) {
  ld_16x256b<4>(a);
  ld_16x256b<8>(a);
  ld_16x256b<16>(a);
  ld_16x256b<32>(a);
  ld_16x256b<64>(a);
  ld_16x256b<128>(a);
}

template <int kCount>
KB_DEVICE void st_32x32b(const Arguments& a) {
  uint32_t values[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = a.out[i];
  ptx::tcgen05_st_32x32b(a.u, values);
}
EVERY(tcgen05_st_32x32b) {
  st_32x32b<1>(a);
  st_32x32b<2>(a);
  st_32x32b<4>(a);
  st_32x32b<8>(a);
  st_32x32b<16>(a);
  st_32x32b<32>(a);
  st_32x32b<64>(a);
  st_32x32b<128>(a);
}
