// Functions that sm_90a and sm_100a have in common.
#include "every_function.cuh"
#include "ptx/address.cuh"
#include "ptx/cluster.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/cvt.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/pdl.cuh"
#include "ptx/red.cuh"
#include "ptx/tensormap.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"
#include "wait.cuh"

using ptx::scope_cluster;
using ptx::scope_cta;
using ptx::sem_acquire;
using ptx::sem_relaxed;
using ptx::sem_release;
using ptx::space_global;
using ptx::space_shared_cluster;
using ptx::space_shared_cta;

EVERY(smem_address) {
  *a.out = ptx::smem_address(a.shared);
}

EVERY(mbarrier_init) {
  ptx::mbarrier_init(a.bar, a.u);
}
EVERY(mbarrier_inval) {
  ptx::mbarrier_inval(a.bar);
}
EVERY(mbarrier_arrive) {
  ptx::mbarrier_arrive(sem_release, scope_cta, a.bar);
  ptx::mbarrier_arrive(sem_release, scope_cluster, a.bar);
  ptx::mbarrier_arrive(sem_relaxed, scope_cta, a.bar, a.u);
  ptx::mbarrier_arrive(sem_relaxed, scope_cluster, a.bar, a.u);
  ptx::mbarrier_arrive(sem_release, scope_cluster, a.remote_bar);
  ptx::mbarrier_arrive(sem_relaxed, scope_cluster, a.remote_bar, a.u);
}
EVERY(mbarrier_arrive_drop) {
  ptx::mbarrier_arrive_drop(sem_release, scope_cta, a.bar);
  ptx::mbarrier_arrive_drop(sem_release, scope_cluster, a.bar);
  ptx::mbarrier_arrive_drop(sem_relaxed, scope_cta, a.bar);
  ptx::mbarrier_arrive_drop(sem_relaxed, scope_cluster, a.bar);
}
EVERY(mbarrier_arrive_expect_tx) {
  ptx::mbarrier_arrive_expect_tx(sem_release, scope_cta, a.bar, a.u);
  ptx::mbarrier_arrive_expect_tx(sem_release, scope_cluster, a.bar, a.u);
  ptx::mbarrier_arrive_expect_tx(sem_relaxed, scope_cta, a.bar, a.u);
  ptx::mbarrier_arrive_expect_tx(sem_relaxed, scope_cluster, a.bar, a.u);
  ptx::mbarrier_arrive_expect_tx(sem_release, scope_cluster, a.remote_bar, a.u);
  ptx::mbarrier_arrive_expect_tx(sem_relaxed, scope_cluster, a.remote_bar, a.u);
}
EVERY(mbarrier_expect_tx) {
  ptx::mbarrier_expect_tx(sem_relaxed, scope_cta, a.bar, a.u);
  ptx::mbarrier_expect_tx(sem_relaxed, scope_cluster, a.bar, a.u);
  ptx::mbarrier_expect_tx(sem_relaxed, scope_cluster, a.remote_bar, a.u);
}
EVERY(mbarrier_complete_tx) {
  ptx::mbarrier_complete_tx(sem_relaxed, scope_cta, a.bar, a.u);
  ptx::mbarrier_complete_tx(sem_relaxed, scope_cluster, a.bar, a.u);
  ptx::mbarrier_complete_tx(sem_relaxed, scope_cluster, a.remote_bar, a.u);
}
EVERY(mbarrier_try_wait_parity) {
  a.out[0] = ptx::mbarrier_try_wait_parity(sem_acquire, scope_cta, a.bar, a.u);
  a.out[1] = ptx::mbarrier_try_wait_parity(sem_acquire, scope_cluster, a.bar, a.u);
  a.out[2] = ptx::mbarrier_try_wait_parity(sem_relaxed, scope_cta, a.bar, a.u);
  a.out[3] = ptx::mbarrier_try_wait_parity(sem_relaxed, scope_cluster, a.bar, a.u);
  a.out[4] = ptx::mbarrier_try_wait_parity(sem_acquire, scope_cta, a.bar, a.u, a.v);
  a.out[5] = ptx::mbarrier_try_wait_parity(sem_acquire, scope_cluster, a.bar, a.u, a.v);
  a.out[6] = ptx::mbarrier_try_wait_parity(sem_relaxed, scope_cta, a.bar, a.u, a.v);
  a.out[7] = ptx::mbarrier_try_wait_parity(sem_relaxed, scope_cluster, a.bar, a.u, a.v);
}
EVERY(mbarrier_test_wait_parity) {
  a.out[0] = ptx::mbarrier_test_wait_parity(sem_acquire, scope_cta, a.bar, a.u);
  a.out[1] = ptx::mbarrier_test_wait_parity(sem_acquire, scope_cluster, a.bar, a.u);
  a.out[2] = ptx::mbarrier_test_wait_parity(sem_relaxed, scope_cta, a.bar, a.u);
  a.out[3] = ptx::mbarrier_test_wait_parity(sem_relaxed, scope_cluster, a.bar, a.u);
}

EVERY(fence_mbarrier_init_release_cluster) {
  ptx::fence_mbarrier_init_release_cluster();
}
EVERY(fence) {
  ptx::fence(ptx::sem_acq_rel, scope_cta);
  ptx::fence(ptx::sem_acq_rel, scope_cluster);
  ptx::fence(ptx::sem_acq_rel, ptx::scope_gpu);
}
EVERY(fence_proxy_async) {
  ptx::fence_proxy_async();
  ptx::fence_proxy_async(space_shared_cta);
  ptx::fence_proxy_async(space_shared_cluster);
  ptx::fence_proxy_async(space_global);
}
EVERY(fence_proxy_async_generic_release_sync_restrict_shared_cta_cluster) {
  ptx::fence_proxy_async_generic_release_sync_restrict_shared_cta_cluster();
}
EVERY(fence_proxy_async_generic_acquire_sync_restrict_shared_cluster_cluster) {
  ptx::fence_proxy_async_generic_acquire_sync_restrict_shared_cluster_cluster();
}

EVERY(griddepcontrol_wait) {
  ptx::griddepcontrol_wait();
}
EVERY(griddepcontrol_launch_dependents) {
  ptx::griddepcontrol_launch_dependents();
}

EVERY(cluster_ctarank) {
  *a.out = ptx::cluster_ctarank();
}
EVERY(cluster_nctarank) {
  *a.out = ptx::cluster_nctarank();
}
EVERY(cluster_ctaid_x) {
  *a.out = ptx::cluster_ctaid_x();
}
EVERY(clusterid_x) {
  *a.out = ptx::clusterid_x();
}
EVERY(barrier_cluster_arrive) {
  ptx::barrier_cluster_arrive(sem_release);
  ptx::barrier_cluster_arrive(sem_relaxed);
}
EVERY(barrier_cluster_wait) {
  ptx::barrier_cluster_wait(sem_acquire);
}
EVERY(mapa) {
  *a.out = ptx::mapa(a.bar, a.u).bits;
}
EVERY(getctarank) {
  *a.out = ptx::getctarank(a.remote_word);
}
EVERY(st_shared_cluster) {
  ptx::st_shared_cluster(a.remote_word, a.u);
}
EVERY(ld_shared_cluster) {
  *a.out = ptx::ld_shared_cluster(a.remote_word);
}
EVERY(st_async_shared_cluster) {
  ptx::st_async_shared_cluster(a.remote_word, a.u, a.remote_bar);
}

EVERY(thread_index) {
  *a.out = ptx::thread_index();
}
EVERY(warp_index) {
  *a.out = ptx::warp_index();
}
EVERY(lane_index) {
  *a.out = ptx::lane_index();
}
EVERY(cta_index) {
  *reinterpret_cast<kb::CtaIndex*>(a.out) = ptx::cta_index();
}
EVERY(cta_count) {
  *reinterpret_cast<kb::CtaIndex*>(a.out) = ptx::cta_count();
}
EVERY(elect_sync) {
  *a.out = ptx::elect_sync();
}
EVERY(bar_warp_sync) {
  ptx::bar_warp_sync();
}
EVERY(bar_sync) {
  ptx::bar_sync();
  ptx::bar_sync(a.u, a.v);
}
EVERY(bar_arrive) {
  ptx::bar_arrive(a.u, a.v);
}
EVERY(setmaxnreg_inc) {
  ptx::setmaxnreg_inc<40>();
}
EVERY(setmaxnreg_dec) {
  ptx::setmaxnreg_dec<40>();
}
EVERY(shfl_sync_bfly) {
  *a.out = ptx::shfl_sync_bfly(a.u, a.v);
}
EVERY(shfl_sync_idx) {
  *a.out = ptx::shfl_sync_idx(a.u, a.v);
}
EVERY(shfl_sync_up) {
  *a.sums = ptx::shfl_sync_up(a.f, a.v);
}
EVERY(vote_sync_ballot) {
  *a.out = ptx::vote_sync_ballot(a.u > a.v);
}
EVERY(vote_sync_any) {
  *a.out = ptx::vote_sync_any(a.u > a.v);
}
EVERY(redux_sync_max) {
  *a.out = ptx::redux_sync_max(a.u);
}
EVERY(redux_sync_add) {
  *a.out = ptx::redux_sync_add(a.u);
}

EVERY(cvt_rn_f16x2_f32) {
  *static_cast<kb::f16x2*>(a.global) = ptx::cvt_rn_f16x2_f32(a.f, a.g);
}
EVERY(cvt_rn_bf16x2_f32) {
  *static_cast<kb::bf16x2*>(a.global) = ptx::cvt_rn_bf16x2_f32(a.f, a.g);
}
EVERY(cvt_rn_satfinite_e4m3x2_f32) {
  *static_cast<kb::e4m3x2*>(a.global) = ptx::cvt_rn_satfinite_e4m3x2_f32(a.f, a.g);
}
EVERY(cvt_rn_f16x2_e4m3x2) {
  *static_cast<kb::f16x2*>(a.shared) =
      ptx::cvt_rn_f16x2_e4m3x2(*static_cast<const kb::e4m3x2*>(a.global));
}
EVERY(cvt_f32_f16) {
  *a.sums = ptx::cvt_f32_f16(*static_cast<const kb::f16*>(a.global));
}

EVERY(cp_async_cg_shared_global_16) {
  ptx::cp_async_cg_shared_global_16(a.shared, a.global, a.u);
}
EVERY(cp_async_ca_shared_global_4) {
  ptx::cp_async_ca_shared_global_4(a.shared, a.global, a.u);
}
EVERY(cp_async_commit_group) {
  ptx::cp_async_commit_group();
}
EVERY(cp_async_wait_group) {
  ptx::cp_async_wait_group<1>();
}
EVERY(cp_async_mbarrier_arrive_noinc) {
  ptx::cp_async_mbarrier_arrive_noinc(a.bar);
}

EVERY(red_relaxed_gpu_global_add_v4_f32) {
  ptx::red_relaxed_gpu_global_add_v4_f32(a.sums, {a.f, a.g, a.f, a.g});
}
EVERY(red_relaxed_gpu_global_add_v2_f32) {
  ptx::red_relaxed_gpu_global_add_v2_f32(a.sums, {a.f, a.g});
}
EVERY(red_relaxed_gpu_global_add_f32) {
  ptx::red_relaxed_gpu_global_add_f32(a.sums, a.f);
}
EVERY(red_release_gpu_global_add_u32) {
  ptx::red_release_gpu_global_add_u32(a.out, a.u);
}
EVERY(atom_relaxed_gpu_global_add_u32) {
  *a.out = ptx::atom_relaxed_gpu_global_add_u32(a.out, a.u);
}
EVERY(red_relaxed_cta_shared_add_u32) {
  ptx::red_relaxed_cta_shared_add_u32(static_cast<uint32_t*>(a.shared), a.u);
}

EVERY(cp_async_bulk_shared_global) {
  ptx::cp_async_bulk_shared_global(a.shared, a.global, a.u, a.bar);
  ptx::cp_async_bulk_shared_global(a.shared, a.global, a.u, a.bar, a.policy);
  ptx::cp_async_bulk_shared_global(a.shared, a.global, a.u, a.bar, a.mask);
}
EVERY(cp_async_bulk_shared_cluster_shared_cta) {
  ptx::cp_async_bulk_shared_cluster_shared_cta(a.remote_word, a.out, a.u, a.remote_bar);
}
EVERY(cp_async_bulk_global_shared) {
  ptx::cp_async_bulk_global_shared(a.global, a.shared, a.u);
  ptx::cp_async_bulk_global_shared(a.global, a.shared, a.u, a.policy);
}
EVERY(cp_async_bulk_tensor_2d_shared_global) {
  ptx::cp_async_bulk_tensor_2d_shared_global(a.shared, a.map, a.x, a.y, a.bar);
  ptx::cp_async_bulk_tensor_2d_shared_global(a.shared, a.map, a.x, a.y, a.bar, a.policy);
  ptx::cp_async_bulk_tensor_2d_shared_global(a.shared, a.map, a.x, a.y, a.bar, a.mask);
  ptx::cp_async_bulk_tensor_2d_shared_global(a.shared, a.map, a.x, a.y, a.bar, a.mask, a.policy);
}
EVERY(cp_async_bulk_tensor_3d_shared_global) {
  ptx::cp_async_bulk_tensor_3d_shared_global(a.shared, a.map, a.x, a.y, a.z, a.bar);
  ptx::cp_async_bulk_tensor_3d_shared_global(a.shared, a.map, a.x, a.y, a.z, a.bar, a.policy);
  ptx::cp_async_bulk_tensor_3d_shared_global(a.shared, a.map, a.x, a.y, a.z, a.bar, a.mask);
  ptx::cp_async_bulk_tensor_3d_shared_global(a.shared, a.map, a.x, a.y, a.z, a.bar, a.mask,
                                             a.policy);
}
EVERY(cp_async_bulk_tensor_4d_shared_global) {
  ptx::cp_async_bulk_tensor_4d_shared_global(a.shared, a.map, a.x, a.y, a.z, a.x, a.bar);
  ptx::cp_async_bulk_tensor_4d_shared_global(a.shared, a.map, a.x, a.y, a.z, a.x, a.bar, a.policy);
}
EVERY(cp_async_bulk_tensor_2d_global_shared) {
  ptx::cp_async_bulk_tensor_2d_global_shared(a.map, a.x, a.y, a.shared);
  ptx::cp_async_bulk_tensor_2d_global_shared(a.map, a.x, a.y, a.shared, a.policy);
}
EVERY(cp_async_bulk_tensor_3d_global_shared) {
  ptx::cp_async_bulk_tensor_3d_global_shared(a.map, a.x, a.y, a.z, a.shared);
}
EVERY(cp_async_bulk_commit_group) {
  ptx::cp_async_bulk_commit_group();
}
EVERY(cp_async_bulk_wait_group) {
  ptx::cp_async_bulk_wait_group<1>();
}
EVERY(cp_async_bulk_wait_group_read) {
  ptx::cp_async_bulk_wait_group_read<1>();
}
EVERY(cp_async_bulk_prefetch_l2_global) {
  ptx::cp_async_bulk_prefetch_l2_global(a.global, a.u);
}
EVERY(cp_async_bulk_prefetch_tensor_2d_l2_global) {
  ptx::cp_async_bulk_prefetch_tensor_2d_l2_global(a.map, a.x, a.y);
}
EVERY(prefetch_tensormap) {
  ptx::prefetch_tensormap(a.map);
}
EVERY(createpolicy_fractional_l2_evict_first) {
  *static_cast<kb::CachePolicy*>(a.global) = ptx::createpolicy_fractional_l2_evict_first();
}
EVERY(createpolicy_fractional_l2_evict_last) {
  *static_cast<kb::CachePolicy*>(a.global) = ptx::createpolicy_fractional_l2_evict_last();
}

EVERY(tensormap_replace_global_address) {
  ptx::tensormap_replace_global_address(space_shared_cta, a.map, a.global);
  ptx::tensormap_replace_global_address(space_global, a.map, a.global);
}
EVERY(tensormap_replace_rank) {
  ptx::tensormap_replace_rank(space_shared_cta, a.map, a.u);
  ptx::tensormap_replace_rank(space_global, a.map, a.u);
}
EVERY(tensormap_replace_box_dim) {
  ptx::tensormap_replace_box_dim<1>(space_shared_cta, a.map, a.u);
  ptx::tensormap_replace_box_dim<1>(space_global, a.map, a.u);
}
EVERY(tensormap_replace_global_dim) {
  ptx::tensormap_replace_global_dim<1>(space_shared_cta, a.map, a.u);
  ptx::tensormap_replace_global_dim<1>(space_global, a.map, a.u);
}
EVERY(tensormap_replace_global_stride) {
  ptx::tensormap_replace_global_stride<1>(space_shared_cta, a.map, a.a);
  ptx::tensormap_replace_global_stride<1>(space_global, a.map, a.a);
}
EVERY(tensormap_replace_element_stride) {
  ptx::tensormap_replace_element_stride<1>(space_shared_cta, a.map, a.u);
  ptx::tensormap_replace_element_stride<1>(space_global, a.map, a.u);
}
EVERY(tensormap_replace_elemtype) {
  ptx::tensormap_replace_elemtype<kb::TensorMapElement::kU8>(space_shared_cta, a.map);
  ptx::tensormap_replace_elemtype<kb::TensorMapElement::kU8>(space_global, a.map);
}
EVERY(tensormap_replace_interleave_layout) {
  ptx::tensormap_replace_interleave_layout<kb::TensorMapInterleave::kNone>(space_shared_cta, a.map);
  ptx::tensormap_replace_interleave_layout<kb::TensorMapInterleave::kNone>(space_global, a.map);
}
EVERY(tensormap_replace_swizzle_mode) {
  ptx::tensormap_replace_swizzle_mode<kb::TensorMapSwizzle::kNone>(space_shared_cta, a.map);
  ptx::tensormap_replace_swizzle_mode<kb::TensorMapSwizzle::kNone>(space_global, a.map);
}
EVERY(tensormap_replace_fill_mode) {
  ptx::tensormap_replace_fill_mode<kb::TensorMapFill::kZero>(space_shared_cta, a.map);
  ptx::tensormap_replace_fill_mode<kb::TensorMapFill::kZero>(space_global, a.map);
}
EVERY(tensormap_cp_fenceproxy) {
  ptx::tensormap_cp_fenceproxy(a.map, a.other_map);
}
EVERY(fence_proxy_tensormap_generic_release_gpu) {
  ptx::fence_proxy_tensormap_generic_release_gpu();
}
EVERY(fence_proxy_tensormap_generic_acquire_gpu) {
  ptx::fence_proxy_tensormap_generic_acquire_gpu(a.map);
}

EVERY(shared_storage) {
  kb::shared_storage<kb::Mbarrier>().state = a.a;
}

EVERY(mbarrier_wait_parity) {
  kb::mbarrier_wait_parity(a.bar, a.u);
  kb::mbarrier_wait_parity(sem_acquire, scope_cluster, a.bar, a.u);
  kb::mbarrier_wait_parity(sem_relaxed, scope_cta, a.bar, a.u);
}
EVERY(global_wait_changed) {
  kb::global_wait_changed(a.out, a.u, a.u);
}
EVERY(global_wait_at_least) {
  kb::global_wait_at_least(a.out, a.u);
}
