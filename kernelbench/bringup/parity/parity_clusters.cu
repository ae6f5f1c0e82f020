// Two CTAs of a cluster: each other's shared memory and barriers, copies to both.
#include "parity.cuh"
#include "ptx/cluster.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"
#include "wait.cuh"

using ptx::scope_cluster;
using ptx::scope_cta;
using ptx::sem_acquire;
using ptx::sem_relaxed;
using ptx::sem_release;

inline constexpr uint32_t kThreads = 64;
inline constexpr uint32_t kTileWords = 2048;

struct SharedStorage {
  alignas(1024) uint32_t tile[kTileWords];
  alignas(128) uint32_t words[64];
  Mbarrier bar;
  Mbarrier counted;
};

KB_DEVICE void cluster_barrier() {
  ptx::barrier_cluster_arrive(sem_release);
  ptx::barrier_cluster_wait(sem_acquire);
}

KB_DEVICE void start(SharedStorage& shared) {
  for (uint32_t i = ptx::thread_index(); i < kTileWords; i += kThreads) shared.tile[i] = 0xee;
  ptx::fence_proxy_async(ptx::space_shared_cta);
  if (ptx::thread_index() == 0) {
    ptx::mbarrier_init(&shared.bar, 1);
    ptx::mbarrier_init(&shared.counted, kThreads + 2);
    ptx::fence_mbarrier_init_release_cluster();
  }
  cluster_barrier();
}

inline rt::LaunchConfig pairs(uint32_t ctas) {
  return {.grid = {ctas, 1, 1},
          .threads = kThreads,
          .shared_bytes = sizeof(SharedStorage),
          .cluster = 2};
}

// ---- Words of the peer, by stores and loads; its barriers, by every remote operation

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) peer_memory(const uint32_t* in, uint32_t* out) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t thread = ptx::thread_index();
  const uint32_t cta = ptx::cta_index().x;
  const uint32_t peer = ptx::cluster_ctarank() ^ 1;
  const uint32_t value = in[cta * kThreads + thread];
  uint32_t* row = out + (cta * kThreads + thread) * 6;
  start(shared);

  const ClusterAddress<uint32_t> word = ptx::mapa(&shared.words[thread], peer);
  ptx::st_shared_cluster(word, value);
  cluster_barrier();
  row[0] = shared.words[thread];
  row[1] = ptx::ld_shared_cluster(word);
  row[2] = ptx::getctarank(word);
  row[3] = ptx::getctarank(ptx::mapa(&shared.words[thread], peer ^ 1));
  cluster_barrier();

  const ClusterAddress<Mbarrier> bar = ptx::mapa(&shared.bar, peer);
  if (thread == 0) ptx::mbarrier_arrive_expect_tx(sem_release, scope_cluster, bar, kThreads * 4);
  ptx::st_async_shared_cluster(word, value * 7, bar);
  mbarrier_wait_parity(sem_acquire, scope_cluster, &shared.bar, 0);
  row[4] = shared.words[thread];
  cluster_barrier();

  // Every thread arrives at the peer; 16 bytes come and go; the last two arrivals come together.
  const ClusterAddress<Mbarrier> counted = ptx::mapa(&shared.counted, peer);
  ptx::st_shared_cluster(word, value + 1);
  ptx::mbarrier_arrive(sem_release, scope_cluster, counted);
  if (thread == 0) {
    ptx::mbarrier_expect_tx(sem_relaxed, scope_cluster, counted, 16);
    ptx::mbarrier_complete_tx(sem_relaxed, scope_cluster, counted, 16);
    ptx::mbarrier_arrive(sem_relaxed, scope_cluster, counted, 2);
  }
  mbarrier_wait_parity(sem_acquire, scope_cluster, &shared.counted, 0);
  row[5] = shared.words[thread];
  cluster_barrier();
}
PARITY_CASE(peer_memory) {
  rt::launch(peer_memory, pairs(4), test.in, test.out);
}

// ---- Bytes from one CTA's shared memory to the other's

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) peer_copies(const uint32_t* in, uint32_t* out) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t thread = ptx::thread_index();
  const uint32_t cta = ptx::cta_index().x;
  const uint32_t peer = ptx::cluster_ctarank() ^ 1;
  start(shared);
  for (uint32_t i = thread; i < 1024; i += kThreads) shared.tile[i] = in[cta * 1024 + i];
  ptx::fence_proxy_async(ptx::space_shared_cta);
  ptx::bar_sync();
  if (thread == 0) {
    ptx::mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.bar, 4096);
    ptx::cp_async_bulk_shared_cluster_shared_cta(ptx::mapa(shared.tile + 1024, peer), shared.tile,
                                                 4096, ptx::mapa(&shared.bar, peer));
  }
  mbarrier_wait_parity(sem_acquire, scope_cluster, &shared.bar, 0);
  for (uint32_t i = thread; i < kTileWords; i += kThreads)
    out[cta * kTileWords + i] = shared.tile[i];
  cluster_barrier();
}
PARITY_CASE(peer_copies) {
  rt::launch(peer_copies, pairs(4), test.in, test.out);
}

// ---- The same place again: a copy that starts when the peer has read what the last one brought

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) peer_reuse(const uint32_t* in, uint32_t* out) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t thread = ptx::thread_index();
  const uint32_t cta = ptx::cta_index().x;
  const uint32_t peer = ptx::cluster_ctarank() ^ 1;
  const uint32_t* place = shared.tile + 1024;
  uint32_t* row = out + cta * 1024;
  start(shared);
  for (uint32_t i = thread; i < 1024; i += kThreads) shared.tile[i] = in[cta * 1024 + i];
  ptx::fence_proxy_async(ptx::space_shared_cta);
  ptx::bar_sync();
  for (uint32_t round = 0; round < 2; ++round) {
    if (thread == 0) {
      if (round == 0) {
        ptx::mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.bar, 2048);
      } else {
        mbarrier_wait_parity(sem_acquire, scope_cluster, &shared.counted, 0);
        ptx::fence_proxy_async_generic_acquire_sync_restrict_shared_cluster_cluster();
      }
      ptx::cp_async_bulk_shared_cluster_shared_cta(ptx::mapa(shared.tile + 1024, peer),
                                                   shared.tile + 512 * round, 2048,
                                                   ptx::mapa(&shared.bar, peer));
    }
    mbarrier_wait_parity(sem_acquire, scope_cluster, &shared.bar, round);
    for (uint32_t i = thread; i < 512; i += kThreads) row[512 * round + i] = place[i];
    if (round == 0) {
      // The next phase is armed before the peer may start the copy that it counts.
      if (thread == 0) {
        ptx::mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.bar, 2048);
      }
      const ClusterAddress<Mbarrier> counted = ptx::mapa(&shared.counted, peer);
      ptx::fence_proxy_async_generic_release_sync_restrict_shared_cta_cluster();
      ptx::mbarrier_arrive(sem_release, scope_cluster, counted, thread == 0 ? 3 : 1);
    }
  }
  cluster_barrier();
}
PARITY_CASE(peer_reuse) {
  rt::launch(peer_reuse, pairs(4), test.in, test.out);
}

// ---- Multicast: each CTA fetches one half for both, in each form

inline constexpr uint32_t kForms = 5;
inline constexpr uint32_t kHalfBytes = 4096;

KB_DEVICE void multicast(SharedStorage& shared, const TensorMap* plane, const TensorMap* volume,
                         const uint32_t* in, uint32_t form, uint32_t rank) {
  const ClusterMask both{3};
  const CachePolicy policy = ptx::createpolicy_fractional_l2_evict_last();
  uint32_t* half = shared.tile + rank * (kHalfBytes / 4);
  const auto y = static_cast<int32_t>(form * 64 + rank * 32);
  switch (form) {
    case 0:
      return ptx::cp_async_bulk_shared_global(half, in + y * 32, kHalfBytes, &shared.bar, both);
    case 1:
      return ptx::cp_async_bulk_tensor_2d_shared_global(half, plane, 0, y, &shared.bar, both);
    case 2:
      return ptx::cp_async_bulk_tensor_2d_shared_global(half, plane, -16, y, &shared.bar, both,
                                                        policy);
    case 3:
      return ptx::cp_async_bulk_tensor_3d_shared_global(half, volume, 0, y % 64, y / 64,
                                                        &shared.bar, both);
    case 4:
      return ptx::cp_async_bulk_tensor_3d_shared_global(half, volume, 16, y % 64 + 16, y / 64,
                                                        &shared.bar, both, policy);
  }
}

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1)
    multicasts(KB_GRID_CONSTANT(TensorMap) plane, KB_GRID_CONSTANT(TensorMap) volume,
               const uint32_t* in, uint32_t* out) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t rank = ptx::cluster_ctarank();
  start(shared);
  for (uint32_t form = 0; form < kForms; ++form) {
    if (ptx::thread_index() == 0) {
      ptx::mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.bar, 2 * kHalfBytes);
      multicast(shared, &plane, &volume, in, form, rank);
    }
    mbarrier_wait_parity(sem_acquire, scope_cluster, &shared.bar, form % 2);
    uint32_t* row = out + (form * 2 + rank) * kTileWords;
    for (uint32_t i = ptx::thread_index(); i < kTileWords; i += kThreads) row[i] = shared.tile[i];
    // Both have read before either overwrites the other's tile.
    ptx::fence_proxy_async(ptx::space_shared_cta);
    cluster_barrier();
  }
}
PARITY_CASE(multicasts) {
  const TensorMap plane = rt::encode_tensor_map({.element = TensorMapElement::kU8,
                                                 .rank = 2,
                                                 .address = test.in,
                                                 .dims = {128, 320},
                                                 .strides = {128},
                                                 .box = {128, 32},
                                                 .swizzle = TensorMapSwizzle::k128B});
  const TensorMap volume = rt::encode_tensor_map({.element = TensorMapElement::kU8,
                                                  .rank = 3,
                                                  .address = test.in,
                                                  .dims = {128, 64, 5},
                                                  .strides = {128, 8192},
                                                  .box = {64, 64, 1},
                                                  .swizzle = TensorMapSwizzle::k64B});
  rt::launch(multicasts, pairs(2), plane, volume, test.in, test.out);
}
