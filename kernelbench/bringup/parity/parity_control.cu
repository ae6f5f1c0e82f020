// Cluster Launch Control, commits to several CTAs, copies that signal the peer's barrier; and
// kernels with one fault each, for the soft executor's reports.
#include "descriptors.cuh"
#include "parity.cuh"
#include "ptx/clc.cuh"
#include "ptx/cluster.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/red.cuh"
#include "ptx/tcgen05.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"
#include "wait.cuh"

using ptx::cta_group_1;
using ptx::cta_group_2;
using ptx::scope_cluster;
using ptx::scope_cta;
using ptx::sem_acquire;
using ptx::sem_release;

inline constexpr uint32_t kThreads = 64;

KB_DEVICE void cluster_barrier() {
  ptx::barrier_cluster_arrive(sem_release);
  ptx::barrier_cluster_wait(sem_acquire);
}

// ---- Every CTA of a grid is worked on once, whoever does it; each adds its size and index

struct Control {
  ClcResponse response;
  Mbarrier bar;
};

template <bool kMulticast>
KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) takeovers(const uint32_t* in, float* out) {
  Control& shared = shared_storage<Control>();
  const uint32_t rank = ptx::cluster_ctarank();
  if (ptx::thread_index() == 0) {
    ptx::mbarrier_init(&shared.bar, 1);
    ptx::fence_mbarrier_init_release_cluster();
  }
  cluster_barrier();
  uint32_t first = ptx::cta_index().x - rank;
  for (uint32_t round = 0;; ++round) {
    const uint32_t cta = first + rank;
    if (ptx::thread_index() == 0) {
      ptx::mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.bar, sizeof(ClcResponse));
    }
    cluster_barrier();
    if (ptx::thread_index() == 0 && (!kMulticast || rank == 0)) {
      if constexpr (kMulticast) {
        ptx::clusterlaunchcontrol_try_cancel_multicast_cluster_all(&shared.response, &shared.bar);
      } else {
        ptx::clusterlaunchcontrol_try_cancel(&shared.response, &shared.bar);
      }
    }
    if (ptx::thread_index() < 32) {
      const uint32_t word = in[cta * 32 + ptx::thread_index()];
      ptx::red_relaxed_gpu_global_add_v2_f32(
          out + (cta * 32 + ptx::thread_index()) * 2,
          {1.0f, static_cast<float>(word % 1024 + ptx::cta_count().x)});
    }
    mbarrier_wait_parity(sem_acquire, scope_cluster, &shared.bar, round % 2);
    if (!ptx::clusterlaunchcontrol_query_cancel_is_canceled(&shared.response)) break;
    first = ptx::clusterlaunchcontrol_query_cancel_get_first_ctaid(&shared.response).x;
    ptx::fence_proxy_async(ptx::space_shared_cta);
    cluster_barrier();
  }
  cluster_barrier();
}

template <bool kMulticast>
void take_over(const Case& test, uint32_t cluster) {
  const auto ctas = static_cast<uint32_t>(test.in_bytes / 128);
  rt::memset_async(test.out, 0, test.out_bytes, {});
  // So much shared memory that few CTAs are resident at once.
  rt::launch(takeovers<kMulticast>,
             {.grid = {ctas, 1, 1},
              .threads = kThreads,
              .shared_bytes = 200 * 1024,
              .cluster = cluster,
              .launch_control = true},
             test.in, reinterpret_cast<float*>(test.out));
}
PARITY_CASE(takeovers) {
  take_over<false>(test, 1);
}
PARITY_CASE(cluster_takeovers) {
  take_over<true>(test, 2);
}

// ---- A commit that arrives in some CTAs of a cluster of four

struct Arrivals {
  Mbarrier bar;
};

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) commits(const uint32_t* in, uint32_t* out) {
  Arrivals& shared = shared_storage<Arrivals>();
  const uint32_t rank = ptx::cluster_ctarank();
  if (ptx::thread_index() == 0) {
    ptx::mbarrier_init(&shared.bar, 1);
    ptx::fence_mbarrier_init_release_cluster();
  }
  cluster_barrier();
  const ClusterMask mask{static_cast<uint16_t>(in[0] & 15)};
  if (rank == 0 && ptx::thread_index() == 0) ptx::tcgen05_commit(cta_group_1, &shared.bar, mask);
  if ((mask.bits >> rank & 1) != 0) {
    mbarrier_wait_parity(sem_acquire, scope_cluster, &shared.bar, 0);
  }
  cluster_barrier();
  if (ptx::thread_index() == 0) {
    out[rank] = ptx::mbarrier_test_wait_parity(sem_acquire, scope_cluster, &shared.bar, 0);
  }
  cluster_barrier();
}
PARITY_CASE(commits) {
  rt::launch(
      commits,
      {.grid = {4, 1, 1}, .threads = kThreads, .shared_bytes = sizeof(Arrivals), .cluster = 4},
      test.in, test.out);
}

// ---- Boxes of both CTAs of a pair, counted by the even CTA's barrier

struct PairTile {
  alignas(1024) uint32_t tile[1024];
  Mbarrier bar;
};

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1)
    pair_loads(KB_GRID_CONSTANT(TensorMap) plane, KB_GRID_CONSTANT(TensorMap) volume,
               uint32_t* out) {
  PairTile& shared = shared_storage<PairTile>();
  const uint32_t rank = ptx::cluster_ctarank();
  if (ptx::thread_index() == 0) {
    ptx::mbarrier_init(&shared.bar, 2);
    ptx::fence_mbarrier_init_release_cluster();
  }
  cluster_barrier();
  const ClusterAddress<Mbarrier> leader = ptx::mapa(&shared.bar, 0);
  for (uint32_t round = 0; round < 2; ++round) {
    if (ptx::thread_index() == 0) {
      ptx::mbarrier_arrive_expect_tx(sem_release, scope_cluster, leader, sizeof shared.tile);
      const auto y = static_cast<int32_t>(32 * rank);
      if (round == 0) {
        ptx::cp_async_bulk_tensor_2d_shared_global(cta_group_2, shared.tile, &plane, 0, y, leader);
      } else {
        ptx::cp_async_bulk_tensor_3d_shared_global(cta_group_2, shared.tile, &volume, 0, y, 1,
                                                   leader);
      }
    }
    if (rank == 0) mbarrier_wait_parity(sem_acquire, scope_cluster, &shared.bar, round);
    cluster_barrier();
    uint32_t* row = out + (2 * round + rank) * 1024;
    for (uint32_t i = ptx::thread_index(); i < 1024; i += kThreads) row[i] = shared.tile[i];
    ptx::fence_proxy_async(ptx::space_shared_cta);
    cluster_barrier();
  }
}
PARITY_CASE(pair_loads) {
  const TensorMap plane = rt::encode_tensor_map({.element = TensorMapElement::kU8,
                                                 .rank = 2,
                                                 .address = test.in,
                                                 .dims = {128, 64},
                                                 .strides = {128},
                                                 .box = {128, 32},
                                                 .swizzle = TensorMapSwizzle::k128B});
  const TensorMap volume = rt::encode_tensor_map({.element = TensorMapElement::kU8,
                                                  .rank = 3,
                                                  .address = test.in,
                                                  .dims = {128, 64, 2},
                                                  .strides = {128, 8192},
                                                  .box = {128, 32, 1},
                                                  .swizzle = TensorMapSwizzle::k128B});
  rt::launch(
      pair_loads,
      {.grid = {2, 1, 1}, .threads = kThreads, .shared_bytes = sizeof(PairTile), .cluster = 2},
      plane, volume, test.out);
}

// ---- One fault each, by number

enum Fault : uint32_t {
  kHang,
  kCounter,         // a counter in global memory that nobody raises
  kOutside,         // a load of columns that are not allocated
  kOtherLanes,      // a load of another warp's lanes
  kNotFreed,        // tensor memory left allocated
  kFreedTwice,      // deallocated twice
  kGrows,           // an allocation larger than the one before
  kAllLanes,        // a commit by every lane
  kBadInstruction,  // reserved bits set
  kBadDescriptor,   // without its constant bit
  kAfterDecline,    // a request after a declined one
};

struct Faulty {
  ClcResponse response;
  Mbarrier unused[2];
  Mbarrier bar;
  uint32_t tmem;
};

KB_DEVICE void decline(Faulty& shared, uint32_t phase) {
  ptx::mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.bar, sizeof(ClcResponse));
  ptx::clusterlaunchcontrol_try_cancel(&shared.response, &shared.bar);
  mbarrier_wait_parity(&shared.bar, phase);
  ptx::clusterlaunchcontrol_query_cancel_is_canceled(&shared.response);
}

KB_DEVICE void misuse(Faulty& shared, uint32_t fault, const uint32_t* counter) {
  const uint32_t tmem = shared.tmem;
  const uint32_t lanes = ptx::warp_index() * 32 << 16;
  const uint64_t tile = tcgen05_smem_descriptor(kTileSw128, 0);
  const Mxf4nvf4Instruction instruction{.m = 128, .n = 32};
  uint32_t value[1];
  switch (fault) {
    case kHang:
      if (ptx::thread_index() == 37) mbarrier_wait_parity(&shared.bar, 0);
      return;
    case kCounter:
      if (ptx::thread_index() == 0) global_wait_at_least(counter, 9);
      return;
    case kOutside:
      return ptx::tcgen05_ld_32x32b(value, tmem + lanes + 128);
    case kOtherLanes:
      return ptx::tcgen05_ld_32x32b(value, tmem + (lanes ^ 32 << 16));
    case kGrows:
      if (ptx::warp_index() == 1) ptx::tcgen05_alloc(cta_group_1, &shared.tmem, 256);
      return;
    case kAllLanes:
      return ptx::tcgen05_commit(cta_group_1, &shared.bar);
    case kBadInstruction:
    case kBadDescriptor:
      if (ptx::thread_index() == 0) {
        ptx::tcgen05_mma_mxf4nvf4_block_scale_4x(
            cta_group_1, tmem, fault == kBadDescriptor ? tile ^ uint64_t{1} << 46 : tile, tile,
            instruction.bits() | (fault == kBadInstruction ? 1u << 12 : 0), tmem + 64, tmem + 68,
            false);
      }
      return;
    case kAfterDecline:
      if (ptx::thread_index() == 0) {
        decline(shared, 0);
        decline(shared, 1);
      }
      return;
    default:
      return;
  }
}

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) faulty(uint32_t fault, const uint32_t* counter) {
  Faulty& shared = shared_storage<Faulty>();
  if (ptx::warp_index() == 0) ptx::tcgen05_alloc(cta_group_1, &shared.tmem, 128);
  if (ptx::thread_index() == 0) ptx::mbarrier_init(&shared.bar, 1);
  ptx::tcgen05_fence_before_thread_sync();
  ptx::bar_sync();
  ptx::tcgen05_fence_after_thread_sync();
  const uint32_t tmem = shared.tmem;
  misuse(shared, fault, counter);
  ptx::bar_sync();
  if (ptx::warp_index() == 0 && fault != kNotFreed) {
    ptx::tcgen05_dealloc(cta_group_1, tmem, 128);
    if (fault == kFreedTwice) ptx::tcgen05_dealloc(cta_group_1, tmem, 128);
  }
}
PARITY_CASE(faulty) {
  rt::launch(faulty, {.grid = {3, 1, 1}, .threads = kThreads, .shared_bytes = sizeof(Faulty)},
             test.host[0], test.in + 1);
}
