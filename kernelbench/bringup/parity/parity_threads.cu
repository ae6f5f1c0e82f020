// Threads, warps, barriers, conversions, copies by threads, dependent launches.
#include "parity.cuh"
#include "ptx/cluster.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/cvt.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/pdl.cuh"
#include "ptx/red.cuh"
#include "ptx/warp.cuh"
#include "wait.cuh"

using ptx::scope_cluster;
using ptx::scope_cta;
using ptx::sem_acquire;
using ptx::sem_relaxed;
using ptx::sem_release;

// ---- Who am I

KB_GLOBAL void KB_LAUNCH_BOUNDS(96, 1) identities(uint32_t* out) {
  const CtaIndex cta = ptx::cta_index();
  const CtaIndex count = ptx::cta_count();
  const uint32_t linear = cta.x + count.x * (cta.y + count.y * cta.z);
  uint32_t* row = out + (linear * 96 + ptx::thread_index()) * 13;
  const uint32_t values[13] = {ptx::thread_index(),
                               ptx::warp_index(),
                               ptx::lane_index(),
                               cta.x,
                               cta.y,
                               cta.z,
                               count.x,
                               count.y,
                               count.z,
                               ptx::cluster_ctarank(),
                               ptx::cluster_nctarank(),
                               ptx::cluster_ctaid_x(),
                               ptx::clusterid_x()};
  for (int i = 0; i < 13; ++i) row[i] = values[i];
}
PARITY_CASE(identities) {
  rt::launch(identities, {.grid = {3, 2, 2}, .threads = 96, .shared_bytes = 0}, test.out);
}
PARITY_CASE(cluster_identities) {
  rt::launch(identities, {.grid = {8, 1, 1}, .threads = 96, .shared_bytes = 0, .cluster = 4},
             test.out);
}

// ---- Exchange within a warp: a value per lane, then the operands

KB_GLOBAL void KB_LAUNCH_BOUNDS(32, 1) exchanges(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = ptx::lane_index();
  const uint32_t value = in[lane];
  const uint32_t operand = in[32] % 32;
  const uint32_t members = in[33] | 1;
  uint32_t* row = out + lane * 12;
  row[0] = ptx::shfl_sync_bfly(value, operand);
  row[1] = ptx::shfl_sync_idx(value, operand);
  row[2] = ptx::shfl_sync_idx(value, in[34 + lane] % 32);
  row[3] = ptx::shfl_sync_up(value, operand);
  row[4] = ptx::vote_sync_ballot((value & 1) != 0);
  row[5] = ptx::vote_sync_any(value == in[0]);
  row[6] = ptx::redux_sync_max(value);
  row[7] = ptx::redux_sync_add(value);
  row[8] = ptx::redux_sync_add(ptx::elect_sync() ? 1 : 0);
  if ((members >> lane & 1) != 0) {
    row[9] = ptx::redux_sync_add(ptx::elect_sync(members) ? 1 : 0, members);
    row[10] = ptx::vote_sync_ballot((value & 2) != 0, members);
    row[11] = ptx::redux_sync_max(value, members);
    ptx::bar_warp_sync(members);
  }
}
PARITY_CASE(exchanges) {
  rt::launch(exchanges, {.grid = {1, 1, 1}, .threads = 32, .shared_bytes = 0}, test.in, test.out);
}

// ---- Named barriers: two warps hand words to two others, and get them back, changed

struct Handover {
  uint32_t there[64];
  uint32_t back[64];
};

KB_GLOBAL void KB_LAUNCH_BOUNDS(128, 1) named_barriers(const uint32_t* in, uint32_t* out) {
  Handover& shared = shared_storage<Handover>();
  const uint32_t thread = ptx::thread_index();
  for (uint32_t round = 0; round < 4; ++round) {
    if (thread < 64) {
      shared.there[thread] = in[round * 64 + thread];
      ptx::bar_arrive(1, 128);
      ptx::bar_sync(2, 128);
      out[round * 64 + thread] = shared.back[thread];
    } else {
      ptx::bar_sync(1, 128);
      shared.back[thread - 64] = shared.there[127 - thread] * 3 + round;
      ptx::bar_arrive(2, 128);
    }
    ptx::bar_sync();
  }
}
PARITY_CASE(named_barriers) {
  rt::launch(named_barriers, {.grid = {1, 1, 1}, .threads = 128, .shared_bytes = sizeof(Handover)},
             test.in, test.out);
}

// ---- mbarrier: a script of (operation, argument); after each what both parities say

enum Operation : uint32_t {
  kArrive,
  kArriveDrop,
  kExpectTx,
  kCompleteTx,
  kArriveExpectTx,
  kArriveRelaxed,
  kRemoteArrive,
  kRemoteExpectTx,
  kRemoteCompleteTx,
  kRemoteArriveExpectTx,
};

KB_DEVICE void operate(Mbarrier* bar, uint32_t operation, uint32_t argument) {
  const ClusterAddress<Mbarrier> mapped = ptx::mapa(bar, ptx::cluster_ctarank());
  switch (operation) {
    case kArrive:
      return ptx::mbarrier_arrive(sem_release, scope_cta, bar, argument);
    case kArriveDrop:
      return ptx::mbarrier_arrive_drop(sem_release, scope_cluster, bar);
    case kExpectTx:
      return ptx::mbarrier_expect_tx(sem_relaxed, scope_cta, bar, argument);
    case kCompleteTx:
      return ptx::mbarrier_complete_tx(sem_relaxed, scope_cta, bar, argument);
    case kArriveExpectTx:
      return ptx::mbarrier_arrive_expect_tx(sem_release, scope_cta, bar, argument);
    case kArriveRelaxed:
      return ptx::mbarrier_arrive(sem_relaxed, scope_cluster, bar, argument);
    case kRemoteArrive:
      return ptx::mbarrier_arrive(sem_release, scope_cluster, mapped, argument);
    case kRemoteExpectTx:
      return ptx::mbarrier_expect_tx(sem_relaxed, scope_cluster, mapped, argument);
    case kRemoteCompleteTx:
      return ptx::mbarrier_complete_tx(sem_relaxed, scope_cluster, mapped, argument);
    case kRemoteArriveExpectTx:
      return ptx::mbarrier_arrive_expect_tx(sem_release, scope_cluster, mapped, argument);
  }
}

KB_GLOBAL void KB_LAUNCH_BOUNDS(32, 1) mbarrier_script(const uint32_t* in, uint32_t* out) {
  Mbarrier* bar = &shared_storage<Mbarrier>();
  if (ptx::thread_index() != 0) return;
  ptx::mbarrier_init(bar, in[0]);
  ptx::fence_mbarrier_init_release_cluster();
  for (uint32_t i = 0; i < in[1]; ++i) {
    operate(bar, in[2 + 2 * i], in[3 + 2 * i]);
    out[4 * i] = ptx::mbarrier_test_wait_parity(sem_acquire, scope_cta, bar, 0);
    out[4 * i + 1] = ptx::mbarrier_test_wait_parity(sem_relaxed, scope_cluster, bar, 1);
    const uint32_t done = out[4 * i] != 0 ? 0 : 1;
    out[4 * i + 2] = ptx::mbarrier_try_wait_parity(sem_acquire, scope_cta, bar, done);
    out[4 * i + 3] = ptx::mbarrier_try_wait_parity(sem_acquire, scope_cluster, bar, done, 1000);
    mbarrier_wait_parity(bar, done);
  }
  ptx::mbarrier_inval(bar);
}
PARITY_CASE(mbarrier_script) {
  rt::launch(mbarrier_script, {.grid = {1, 1, 1}, .threads = 32, .shared_bytes = sizeof(Mbarrier)},
             test.in, test.out);
}

// ---- Conversions: pairs of floats, then every e4m3 pair and every half

KB_GLOBAL void KB_LAUNCH_BOUNDS(256, 1)
    conversions(const uint32_t* in, uint32_t* out, uint32_t pairs) {
  const uint32_t i = ptx::cta_index().x * 256 + ptx::thread_index();
  if (i < pairs) {
    const float lo = __builtin_bit_cast(float, in[2 * i]);
    const float hi = __builtin_bit_cast(float, in[2 * i + 1]);
    out[3 * i] = __builtin_bit_cast(uint32_t, ptx::cvt_rn_f16x2_f32(lo, hi));
    out[3 * i + 1] = __builtin_bit_cast(uint32_t, ptx::cvt_rn_bf16x2_f32(lo, hi));
    out[3 * i + 2] = __builtin_bit_cast(uint16_t, ptx::cvt_rn_satfinite_e4m3x2_f32(lo, hi));
  }
  if (i < 65536) {
    uint32_t* row = out + 3 * pairs + 2 * i;
    auto bits = static_cast<uint16_t>(i);
    row[0] =
        __builtin_bit_cast(uint32_t, ptx::cvt_rn_f16x2_e4m3x2(__builtin_bit_cast(e4m3x2, bits)));
    row[1] = __builtin_bit_cast(uint32_t, ptx::cvt_f32_f16(f16{bits}));
  }
}
PARITY_CASE(conversions) {
  const auto pairs = static_cast<uint32_t>(test.in_bytes / 8);
  const uint32_t ctas = (pairs > 65536 ? pairs : 65536) / 256 + 1;
  rt::launch(conversions, {.grid = {ctas, 1, 1}, .threads = 256, .shared_bytes = 0}, test.in,
             test.out, pairs);
}

// ---- Reductions of small integers: exact in any order

KB_GLOBAL void KB_LAUNCH_BOUNDS(128, 1) reductions(const uint32_t* in, float* out) {
  const uint32_t thread = ptx::thread_index();
  if (thread < 64) out[thread] = 0;
  ptx::bar_sync();
  for (uint32_t i = 0; i < 16; ++i) {
    const uint32_t word = in[thread * 16 + i];
    const auto value = [word](uint32_t shift) {
      return static_cast<float>(word >> shift & 0xff) - 100.0f;
    };
    ptx::red_relaxed_gpu_global_add_v4_f32(out + word % 8 * 4,
                                           {value(0), value(8), value(16), value(24)});
    ptx::red_relaxed_gpu_global_add_v2_f32(out + 32 + word % 16 * 2, {value(4), value(12)});
  }
}
PARITY_CASE(reductions) {
  rt::launch(reductions, {.grid = {1, 1, 1}, .threads = 128, .shared_bytes = 0}, test.in,
             reinterpret_cast<float*>(test.out));
}

// ---- Counters: sums in shared and in global memory, and a ticket for each thread

struct Counters {
  uint32_t sums[8];
};

KB_GLOBAL void KB_LAUNCH_BOUNDS(128, 1) counters(const uint32_t* in, uint32_t* out) {
  Counters& shared = shared_storage<Counters>();
  const uint32_t thread = ptx::thread_index();
  const uint32_t word = in[thread];
  uint32_t* next = out;
  uint32_t* taken = out + 16;
  if (thread < 8) shared.sums[thread] = 0;
  if (thread < 16) out[thread] = 0;
  taken[thread] = 0;
  ptx::bar_sync();
  ptx::red_relaxed_cta_shared_add_u32(&shared.sums[word % 8], word >> 4);
  ptx::red_relaxed_gpu_global_add_f32(reinterpret_cast<float*>(out + 1),
                                      static_cast<float>(word % 4096) - 2000.0f);
  const uint32_t ticket = ptx::atom_relaxed_gpu_global_add_u32(next, 1);
  ptx::fence(ptx::sem_acq_rel, ptx::scope_gpu);
  taken[ticket] = ticket + 1;
  ptx::bar_sync();
  if (thread < 8) out[2 + thread] = shared.sums[thread];
}
PARITY_CASE(counters) {
  rt::launch(counters, {.grid = {1, 1, 1}, .threads = 128, .shared_bytes = sizeof(Counters)},
             test.in, test.out);
}

// ---- cp.async with every number of source bytes

struct Copies {
  alignas(16) uint32_t wide[17][4];
  uint32_t narrow[5];
  Mbarrier bar;
};

KB_GLOBAL void KB_LAUNCH_BOUNDS(32, 1) thread_copies(const uint32_t* in, uint32_t* out) {
  Copies& shared = shared_storage<Copies>();
  const uint32_t lane = ptx::lane_index();
  if (lane == 0) ptx::mbarrier_init(&shared.bar, 32);
  ptx::bar_sync();
  if (lane < 17) ptx::cp_async_cg_shared_global_16(shared.wide[lane], in + 4 * lane, lane);
  ptx::cp_async_commit_group();
  if (lane < 5) ptx::cp_async_ca_shared_global_4(&shared.narrow[lane], in + 68 + lane, lane);
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<1>();
  ptx::bar_sync();
  for (uint32_t i = lane; i < 68; i += 32) out[i] = shared.wide[i / 4][i % 4];
  ptx::cp_async_wait_group<0>();
  ptx::bar_sync();
  if (lane < 5) out[68 + lane] = shared.narrow[lane];
  ptx::bar_sync();
  // Again, waited for on a barrier.
  if (lane < 17) ptx::cp_async_cg_shared_global_16(shared.wide[lane], in + 73 + 3 + 4 * lane, 16);
  ptx::cp_async_mbarrier_arrive_noinc(&shared.bar);
  mbarrier_wait_parity(&shared.bar, 0);
  for (uint32_t i = lane; i < 68; i += 32) out[73 + i] = shared.wide[i / 4][i % 4];
}
PARITY_CASE(thread_copies) {
  rt::launch(thread_copies, {.grid = {1, 1, 1}, .threads = 32, .shared_bytes = sizeof(Copies)},
             test.in, test.out);
}

// ---- A launch that may start before the one it reads from has ended

KB_GLOBAL void KB_LAUNCH_BOUNDS(128, 1) primary(const uint32_t* in, uint32_t* out) {
  ptx::griddepcontrol_launch_dependents();
  const uint32_t i = ptx::cta_index().x * 128 + ptx::thread_index();
  out[i] = in[i] * 5 + 1;
}
KB_GLOBAL void KB_LAUNCH_BOUNDS(128, 1) secondary(uint32_t* out) {
  const uint32_t i = ptx::cta_index().x * 128 + ptx::thread_index();
  ptx::griddepcontrol_wait();
  out[1024 + i] = out[1023 - i] ^ i;
}
PARITY_CASE(dependent_launch) {
  rt::launch(primary, {.grid = {8, 1, 1}, .threads = 128, .shared_bytes = 0}, test.in, test.out);
  rt::launch(secondary, {.grid = {8, 1, 1}, .threads = 128, .shared_bytes = 0, .dependent = true},
             test.out);
}

// ---- CTAs of a cooperative grid pass a sum on, each behind the one before it

KB_GLOBAL void KB_LAUNCH_BOUNDS(32, 1) relay(const uint32_t* in, uint32_t* out, uint32_t* turn) {
  const uint32_t cta = ptx::cta_index().x;
  if (ptx::thread_index() == 0) {
    global_wait_at_least(turn, cta);
    out[cta] = in[cta] + (cta == 0 ? 0 : out[cta - 1]);
    ptx::red_release_gpu_global_add_u32(turn, 1);
  }
}
PARITY_CASE(relay) {
  auto* turn = static_cast<uint32_t*>(rt::device_malloc(sizeof(uint32_t)));
  rt::memset_async(turn, 0, sizeof(uint32_t), {});
  rt::launch(relay, {.grid = {16, 1, 1}, .threads = 32, .shared_bytes = 0, .cooperative = true},
             test.in, test.out, turn);
  rt::stream_synchronize({});
  rt::device_free(turn);
}

// ---- Warpgroups that give registers away and take them

KB_GLOBAL void KB_LAUNCH_BOUNDS(384, 1) register_counts(const uint32_t* in, uint32_t* out) {
  const uint32_t thread = ptx::thread_index();
  if (thread < 128) {
    ptx::setmaxnreg_dec<40>();
    out[thread] = in[thread] + 1;
  } else {
    ptx::setmaxnreg_inc<232>();
    out[thread] = in[thread] * 2;
  }
}
PARITY_CASE(register_counts) {
  rt::launch(register_counts, {.grid = {2, 1, 1}, .threads = 384, .shared_bytes = 0}, test.in,
             test.out);
}
