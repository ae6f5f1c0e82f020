// Warps, barriers, fences, tensor cores: PTX's operands → the runtime's functions.
#pragma once

#include "copies.hpp"
#include "runtime/api_tensor.hpp"
#include "strong.hpp"

namespace px {

using emu::DenseKind;
using emu::ElementKind;
using emu::TmemShape;
using emu::WgmmaKind;

// Special registers.
PX u32 component(const emu::BlockExtent& of, int axis) {
  return axis == 0 ? of.x : axis == 1 ? of.y : of.z;
}
PX u32 component(const kb::CtaIndex& of, int axis) {
  return axis == 0 ? of.x : axis == 1 ? of.y : of.z;
}
PX u32 ntid(int axis) {
  return component(emu::block_extent(), axis);
}
PX u32 tid(int axis) {
  const emu::BlockExtent of = emu::block_extent();
  const u32 flat = emu::thread_index();
  return axis == 0 ? flat % of.x : axis == 1 ? flat / of.x % of.y : flat / (of.x * of.y);
}
PX u32 ctaid(int axis) {
  return component(emu::cta_index(), axis);
}
PX u32 nctaid(int axis) {
  return component(emu::cta_count(), axis);
}
PX u32 cta_threads() {
  const emu::BlockExtent of = emu::block_extent();
  return of.x * of.y * of.z;
}
PX u32 laneid() {
  return emu::thread_index() % 32;
}
PX u32 warpid() {
  return emu::thread_index() / 32;
}
PX u32 nwarpid() {
  return (cta_threads() + 31) / 32;
}
PX u32 lanemask_eq() {
  return 1u << laneid();
}
PX u32 nsmid() {
  return static_cast<u32>(emu::sm_count());
}
PX u32 smid() {
  return ((ctaid(2) * nctaid(1) + ctaid(1)) * nctaid(0) + ctaid(0)) % nsmid();
}
PX u32 cluster_ctarank() {
  return emu::cluster_ctarank();
}
PX u32 cluster_nctarank() {
  return emu::cluster_nctarank();
}
PX u32 cluster_nctaid(int axis) {
  return component(emu::cluster_extent(), axis);
}
PX u32 cluster_ctaid(int axis) {
  return ctaid(axis) % cluster_nctaid(axis);
}
PX u32 clusterid(int axis) {
  return ctaid(axis) / cluster_nctaid(axis);
}
PX u32 nclusterid(int axis) {
  return nctaid(axis) / cluster_nctaid(axis);
}
// The halves of an address, of what cooperative groups synchronize a grid with.
PX u32 envreg(int number) {
  const auto address = reinterpret_cast<u64>(emu::grid_words());
  return static_cast<u32>(number == 1 ? address >> 32 : number == 2 ? address : 0);
}
PX u32 dynamic_smem_size(u32 static_bytes) {
  return emu::dynamic_shared_bytes(static_bytes);
}
// A loop that waits for a time ends, and a schedule comes again: each reading is 1 µs later.
PX u64 clock() {
  static thread_local u64 now = 0;
  return now += 1000;
}

// Warps.
enum class Shuffle { up, down, bfly, idx };
template <Shuffle mode>
PX emu::Shuffled shfl(b32 value, u32 operand, u32 clamp, u32 members) {
  constexpr emu::ShuffleMode kMode = mode == Shuffle::up     ? emu::ShuffleMode::kUp
                                     : mode == Shuffle::down ? emu::ShuffleMode::kDown
                                     : mode == Shuffle::bfly ? emu::ShuffleMode::kXor
                                                             : emu::ShuffleMode::kIndex;
  return emu::shfl_segment(kMode, value, operand, clamp, members);
}
PX b32 vote_ballot(bool p, u32 members) {
  return emu::vote(p, members).held;
}
PX bool vote_any(bool p, u32 members) {
  return emu::vote(p, members).held != 0;
}
PX bool vote_all(bool p, u32 members) {
  const emu::Votes votes = emu::vote(p, members);
  return votes.held == votes.cast;
}
PX bool vote_uni(bool p, u32 members) {
  const emu::Votes votes = emu::vote(p, members);
  return votes.held == 0 || votes.held == votes.cast;
}
template <typename T>
PX T redux(emu::Reduction reduction, T value, u32 members) {
  return static_cast<T>(
      emu::redux(reduction, std::is_signed_v<T>, static_cast<u32>(value), members));
}
template <typename T>
PX T redux_add(T value, u32 members) {
  return redux(emu::Reduction::kAdd, value, members);
}
template <typename T>
PX T redux_min(T value, u32 members) {
  return redux(emu::Reduction::kMin, value, members);
}
template <typename T>
PX T redux_max(T value, u32 members) {
  return redux(emu::Reduction::kMax, value, members);
}
template <typename T>
PX T redux_and(T value, u32 members) {
  return redux(emu::Reduction::kAnd, value, members);
}
template <typename T>
PX T redux_or(T value, u32 members) {
  return redux(emu::Reduction::kOr, value, members);
}
template <typename T>
PX T redux_xor(T value, u32 members) {
  return redux(emu::Reduction::kXor, value, members);
}
// Bits of an f32 in an order of unsigned integers, -0 before +0; a NaN at the given end.
PX u32 ordered(f32 value, bool nan_last) {
  const u32 bits = __builtin_bit_cast(u32, value);
  if ((bits & 0x7fffffff) > 0x7f800000) return nan_last ? ~0u : 0;
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000;
}
PX f32 unordered(u32 key) {
  if (key == 0 || key == ~0u) return __builtin_bit_cast(f32, 0x7fffffffu);
  return __builtin_bit_cast(f32, key >> 31 != 0 ? key & 0x7fffffff : ~key);
}
// Without .NaN a NaN counts only among NaNs.
PX f32 redux_min_real(f32 value, u32 members, bool nan) {
  return unordered(redux_min(ordered(value, !nan), members));
}
PX f32 redux_max_real(f32 value, u32 members, bool nan) {
  return unordered(redux_max(ordered(value, nan), members));
}
PX b32 match_any(b64 value, u32 members) {
  return emu::match_any(value, members);
}
PX u32 elected_by(u32 members) {
  return emu::elected_by(members);
}
PX b32 active_mask(bool together) {
  return emu::active_mask(together);
}
PX b32 match_all(b64 value, u32 members) {
  return emu::match_all(value, members);
}
PX b32 movmatrix(b32 value) {
  return emu::movmatrix(value);
}
PX void bar_warp_sync(u32 members) {
  emu::bar_warp_sync(members);
}
PX void setmaxnreg(u32 count, bool increase) {
  emu::setmaxnreg(count, increase);
}
template <int count, bool transposed>
PX void ldmatrix(b32* out, const Byte* row) {
  emu::ldmatrix(out, count, transposed, row);
}
template <int count, bool transposed>
PX void stmatrix(Byte* row, const b32* in) {
  emu::stmatrix(row, in, count, transposed);
}
using emu::MmaElement;
using emu::MmaForm;
using emu::MmaSparse;
using emu::MmaSum;
PX void mma(const MmaForm& form, b32* d, const b32* a, const b32* b, const b32* c,
            b32 metadata = 0) {
  emu::mma_sync(form, d, a, b, c, metadata);
}

// The CTA, the cluster, the grid.
PX void bar_sync(u32 barrier) {
  emu::bar_sync_all(barrier);
}
PX void bar_sync(u32 barrier, u32 threads) {
  emu::bar_sync(barrier, threads);
}
// Without a count all threads take part.
PX u32 bar_red_popc(bool predicate, u32 barrier) {
  return emu::bar_red_all(barrier, predicate);
}
PX u32 bar_red_popc(bool predicate, u32 barrier, u32 threads) {
  return emu::bar_red(barrier, threads, predicate);
}
template <typename... Of>
PX bool bar_red_or(bool predicate, Of... of) {
  return bar_red_popc(predicate, of...) != 0;
}
template <typename... Of>
PX bool bar_red_and(bool predicate, Of... of) {
  return bar_red_popc(!predicate, of...) == 0;
}
PX void bar_arrive(u32 barrier, u32 threads) {
  emu::bar_arrive(barrier, threads);
}
PX void cluster_arrive(bool release) {
  emu::barrier_cluster_arrive(release);
}
PX void cluster_wait() {
  emu::barrier_cluster_wait();
}
PX void griddepcontrol_wait() {
  emu::griddepcontrol_wait();
}
PX void griddepcontrol_launch_dependents() {
  emu::griddepcontrol_launch_dependents();
}
PX void nanosleep() {
  emu::sleep_a_while();
}
PX void trap() {
  emu::trap();
}
PX void assertion_failed() {
  emu::assertion_failed();
}
PX void breakpoint() {
  emu::breakpoint();
}
PX void fence(Scope scope) {
  emu::fence_acq_rel(scope);
}
PX void fence_mbarrier_init() {
  emu::fence_mbarrier_init();
}
PX void fence_proxy_async(bool shared, bool global) {
  emu::fence_proxy_async(shared, global);
}
// PTX: fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster (9.7.13.4).
// Assumption: it publishes without the acquire that PTX pairs it with, as kernels have it
// (NVFP4, tilus); and as a fence it covers more than .shared::cta.
PX void fence_proxy_async_release() {
  emu::fence_proxy_async(true, false);
  emu::fence_acq_rel(Scope::kCluster);
}
PX void fence_tensormap_release() {
  emu::fence_proxy_tensormap_release();
}
PX void fence_tensormap_acquire(const void* map) {
  emu::fence_proxy_tensormap_acquire(map_at(map));
}

// red.global.add of vectors.
template <int count>
PX void reduce_add(Byte* to, const f32 (&values)[count]) {
  emu::red_add_f32(reinterpret_cast<f32*>(to), values, count);
}

// wgmma.
PX void wgmma_fence() {
  emu::wgmma_fence();
}
PX void wgmma_commit() {
  emu::wgmma_commit_group();
}
// What a mov has copied: an accumulator that is still to be filled is followed.
PX void copied(b32& to, const b32& from) {
  if (from == ~0u) emu::wgmma_copied(&to, &from);
}
PX void wgmma_wait(u32 pending) {
  emu::wgmma_wait_group(pending);
}
PX void wgmma(WgmmaKind kind, b32* d, u32 count, const b32* a, u64 a_tile, u64 b_tile,
              bool accumulate, emu::WgmmaTransposed transposed) {
  emu::wgmma_mma_async(kind, reinterpret_cast<f32*>(d), count, a, a_tile, b_tile, accumulate,
                       transposed);
}

// tcgen05.
PX void tcgen05_alloc(u32 group, u32 to, u32 columns) {
  emu::tcgen05_alloc(group, reinterpret_cast<u32*>(cluster_at(to)), columns);
}
PX void tcgen05_dealloc(u32 group, u32 tmem, u32 columns) {
  emu::tcgen05_dealloc(group, tmem, columns);
}
PX void tcgen05_relinquish(u32 group) {
  emu::tcgen05_relinquish_alloc_permit(group);
}
PX void tcgen05_cp(u32 group, u32 tmem, u64 source) {
  emu::tcgen05_cp_32x128b_warpx4(group, tmem, source);
}
PX void tcgen05_commit(u32 group, u32 bar, bool multicast, u32 mask) {
  emu::tcgen05_commit(group, cluster_at(bar), multicast, mask);
}
PX void tcgen05_ld(TmemShape shape, b32* out, u32 count, u32 tmem, u32 split = 0) {
  emu::tcgen05_ld(shape, out, count, tmem, split);
}
PX void tcgen05_st(TmemShape shape, u32 tmem, const b32* in, u32 count, u32 split = 0) {
  emu::tcgen05_st(shape, tmem, in, count, split);
}
// The mask of lanes that keep their old D, which CUTLASS writes as zeros.
PX void no_lane_disabled(std::initializer_list<b32> masks) {
  for (const b32 mask : masks) {
    if (mask != 0) emu::lanes_disabled();
  }
}
using emu::DenseOperands;
PX void tcgen05_mma(DenseKind kind, u32 group, const DenseOperands& operands, u32 instruction,
                    bool accumulate) {
  emu::tcgen05_mma_dense(kind, group, operands, instruction, accumulate);
}
PX void tcgen05_arrived(const b32* out) {
  emu::tcgen05_arrived(out);
}
PX void tcgen05_wait_st() {
  emu::tcgen05_wait_st();
}
PX void tcgen05_wait_ld() {
  emu::tcgen05_wait_ld();
}
PX void tcgen05_fence_before() {
  emu::tcgen05_fence_before_thread_sync();
}
PX void tcgen05_fence_after() {
  emu::tcgen05_fence_after_thread_sync();
}
PX void tcgen05_mma_fp4(u32 group, u32 scales, u32 d, u64 a, u64 b, u32 instruction, u32 scales_a,
                        u32 scales_b, bool accumulate) {
  emu::tcgen05_mma_fp4(group, scales, d, a, b, instruction, scales_a, scales_b, accumulate);
}

// Launch control.
PX void try_cancel(u32 response, u32 bar, bool multicast) {
  emu::try_cancel(reinterpret_cast<kb::ClcResponse*>(cluster_at(response)), cluster_at(bar),
                  multicast);
}
// The answer as clc.cpp writes it; its bytes have come through a load, which the checker has seen.
PX bool is_canceled(b128 answer) {
  return part<b32, 1>(answer) != 0;
}
PX kb::CtaIndex first_ctaid(b128 answer) {
  return {part<b32, 2>(answer), part<b16, 6>(answer), part<b16, 7>(answer)};
}

}  // namespace px
