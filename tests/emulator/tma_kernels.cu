// Kernels for test_emu_tma*.py and test_emu_cp_async.py: copies in each direction, right ones and
// wrong ones.
#include "tma_test.cuh"

namespace {

KB_GLOBAL void load_kernel(KB_GRID_CONSTANT(TensorMap) map, Box box, void* out, uint32_t out_bytes,
                           uint32_t fault) {
  Storage& shared = shared_storage<Storage>();
  for (uint32_t i = thread_index(); i < kBytes / 4; i += kThreads) {
    reinterpret_cast<uint32_t*>(shared.data)[i] = 0xcdcdcdcd;
  }
  fence_proxy_async(space_shared_cta);
  if (fault == kSharedMap && thread_index() == 0) shared.map = map;
  start_barrier(shared);
  if (thread_index() == 0) {
    if (fault != kNoExpect) {
      mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.bar, box.bytes);
    }
    const TensorMap* used = fault == kSharedMap ? &shared.map : &map;
    prefetch_tensormap(&map);
    load(shared.data + box.offset, used, box, &shared.bar);
    if (fault == kNoExpect) mbarrier_arrive(sem_release, scope_cta, &shared.bar);
  }
  if (fault == kNoWait) return;
  if (fault != kEarlyRead) mbarrier_wait_parity(&shared.bar, 0);
  copy_bytes(out, shared.data, out_bytes);
  if (fault == kEarlyRead) mbarrier_wait_parity(&shared.bar, 0);
}

KB_GLOBAL void multicast_kernel(KB_GRID_CONSTANT(TensorMap) map, Box box, unsigned char* out,
                                uint32_t out_bytes, uint32_t mask) {
  Storage& shared = shared_storage<Storage>();
  start_filled(shared);
  barrier_cluster_arrive(sem_release);
  barrier_cluster_wait(sem_acquire);
  const uint32_t rank = cluster_ctarank();
  const bool receives = (mask >> rank & 1) != 0;
  if (thread_index() == 0) {
    if (receives) mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.bar, box.bytes);
    if (rank == 0) {
      cp_async_bulk_tensor_2d_shared_global(shared.data + box.offset, &map, box.at[0], box.at[1],
                                            &shared.bar, ClusterMask{static_cast<uint16_t>(mask)},
                                            createpolicy_fractional_l2_evict_last());
    }
  }
  if (receives) {
    mbarrier_wait_parity(sem_acquire, scope_cluster, &shared.bar, 0);
    copy_bytes(out + rank * out_bytes, shared.data, out_bytes);
  }
  barrier_cluster_arrive(sem_release);
  barrier_cluster_wait(sem_acquire);
}

// Each CTA of a pair loads a box; rank 0's barrier, or `bar_rank`'s, counts both.
KB_GLOBAL void pair_kernel(KB_GRID_CONSTANT(TensorMap) map, Box box, unsigned char* out,
                           uint32_t bar_rank) {
  Storage& shared = shared_storage<Storage>();
  start_barrier(shared);
  barrier_cluster_arrive(sem_release);
  barrier_cluster_wait(sem_acquire);
  const uint32_t rank = cluster_ctarank();
  if (thread_index() == 0) {
    const ClusterAddress<Mbarrier> bar = mapa(&shared.bar, bar_rank);
    if (rank == bar_rank) {
      mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.bar, 2 * box.bytes);
    }
    const auto y = box.at[1] + static_cast<int32_t>(rank);
    if (box.rank == 2) {
      cp_async_bulk_tensor_2d_shared_global(cta_group_2, shared.data, &map, box.at[0], y, bar);
    } else {
      cp_async_bulk_tensor_3d_shared_global(cta_group_2, shared.data, &map, box.at[0], y, box.at[2],
                                            bar);
    }
  }
  if (rank == bar_rank) mbarrier_wait_parity(sem_acquire, scope_cluster, &shared.bar, 0);
  barrier_cluster_arrive(sem_release);
  barrier_cluster_wait(sem_acquire);
  copy_bytes(out + rank * box.bytes, shared.data, box.bytes);
  barrier_cluster_arrive(sem_release);
  barrier_cluster_wait(sem_acquire);
}

// One plain multicast copy to both CTAs, and from rank 1 on to rank 0.
KB_GLOBAL void peer_kernel(const unsigned char* in, unsigned char* out, uint32_t bytes) {
  Storage& shared = shared_storage<Storage>();
  const uint32_t rank = cluster_ctarank();
  if (thread_index() == 0) {
    mbarrier_init(&shared.second, 1);
    if (rank == 0) mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.second, bytes);
  }
  start_barrier(shared);
  barrier_cluster_arrive(sem_release);
  barrier_cluster_wait(sem_acquire);
  if (thread_index() == 0) {
    mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.bar, bytes);
    if (rank == 0) {
      cp_async_bulk_shared_global(shared.data, in, bytes, &shared.bar, ClusterMask{3});
    }
  }
  mbarrier_wait_parity(sem_acquire, scope_cluster, &shared.bar, 0);
  if (thread_index() == 0 && rank == 1) {
    cp_async_bulk_shared_cluster_shared_cta(mapa(shared.data + kBytes / 2, 0u), shared.data, bytes,
                                            mapa(&shared.second, 0u));
  }
  if (rank == 0) {
    mbarrier_wait_parity(sem_acquire, scope_cluster, &shared.second, 0);
    copy_bytes(out, shared.data + kBytes / 2, bytes);
  }
  barrier_cluster_arrive(sem_release);
  barrier_cluster_wait(sem_acquire);
}

KB_GLOBAL void store_kernel(KB_GRID_CONSTANT(TensorMap) map, Box box, const void* in,
                            uint32_t in_bytes, uint32_t fault) {
  Storage& shared = shared_storage<Storage>();
  copy_bytes(shared.data, in, in_bytes);
  if (fault != kNoFence) fence_proxy_async(space_shared_cta);
  bar_sync();
  if (thread_index() == 0) {
    store(&map, box, shared.data + box.offset);
    if (fault != kNoCommit) cp_async_bulk_commit_group();
    if (fault == kEarlyWrite) shared.data[box.offset] = 1;
    if (fault != kNoWait) cp_async_bulk_wait_group_read<0>();
    shared.data[box.offset + 4] = 1;
  }
}

// Copies `bytes` in and out in plain bulk copies; seen[0], seen[1]: the first word of `out` after
// the source was read, and after the write was done.
KB_GLOBAL void plain_kernel(const unsigned char* in, unsigned char* out, uint32_t bytes,
                            uint32_t* seen) {
  Storage& shared = shared_storage<Storage>();
  start_barrier(shared);
  if (thread_index() == 0) {
    cp_async_bulk_prefetch_l2_global(in, bytes);
    mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.bar, bytes);
    cp_async_bulk_shared_global(shared.data, in, bytes, &shared.bar,
                                createpolicy_fractional_l2_evict_first());
  }
  mbarrier_wait_parity(&shared.bar, 0);
  if (thread_index() != 0) return;
  cp_async_bulk_global_shared(out, shared.data, bytes, createpolicy_fractional_l2_evict_last());
  cp_async_bulk_commit_group();
  cp_async_bulk_wait_group_read<0>();
  seen[0] = *reinterpret_cast<const volatile uint32_t*>(out);
  cp_async_bulk_wait_group<0>();
  seen[1] = *reinterpret_cast<const volatile uint32_t*>(out);
}

// Three groups of one store each; how many of the first two have been written after waiting for
// all but one.
KB_GLOBAL void groups_kernel(const unsigned char* in, unsigned char* out, uint32_t* seen) {
  Storage& shared = shared_storage<Storage>();
  copy_bytes(shared.data, in, 3 * 128);
  fence_proxy_async(space_shared_cta);
  bar_sync();
  if (thread_index() != 0) return;
  for (uint32_t i = 0; i < 3; ++i) {
    cp_async_bulk_global_shared(out + i * 128, shared.data + i * 128, 128);
    cp_async_bulk_commit_group();
  }
  cp_async_bulk_wait_group<1>();
  for (uint32_t i = 0; i < 3; ++i) {
    seen[i] = *reinterpret_cast<const volatile uint32_t*>(out + i * 128);
  }
  shared.data[0] = 1;
  shared.data[128] = 1;
  cp_async_bulk_wait_group_read<0>();
  shared.data[256] = 1;
}

// Every thread copies 16 bytes, of which `bytes` from memory, and another thread's are read.
KB_GLOBAL void cp_async_kernel(const unsigned char* in, unsigned char* out, uint32_t bytes,
                               bool by_barrier, uint32_t fault) {
  Storage& shared = shared_storage<Storage>();
  const uint32_t thread = thread_index();
  if (thread == 0) mbarrier_init(&shared.bar, kThreads);
  bar_sync();
  cp_async_cg_shared_global_16(shared.data + thread * 16, in + thread * 16, bytes);
  cp_async_ca_shared_global_4(shared.data + 1024 + thread * 4, in + 1024 + thread * 4,
                              bytes > 4 ? 4 : bytes);
  if (by_barrier) {
    cp_async_mbarrier_arrive_noinc(&shared.bar);
    mbarrier_wait_parity(&shared.bar, 0);
  } else {
    cp_async_commit_group();
    if (fault != kNoWait) cp_async_wait_group<0>();
    if (fault != kEarlyRead) bar_sync();
  }
  const uint32_t other = kThreads - 1 - thread;
  for (uint32_t i = 0; i < 16; ++i) out[other * 16 + i] = shared.data[other * 16 + i];
  for (uint32_t i = 0; i < 4; ++i) out[1024 + other * 4 + i] = shared.data[1024 + other * 4 + i];
  if (fault == kNoWait) cp_async_wait_group<0>();
}

KB_GLOBAL void policy_kernel(const void* in, uint64_t policy) {
  Storage& shared = shared_storage<Storage>();
  start_barrier(shared);
  if (thread_index() == 0) {
    mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.bar, 16);
    cp_async_bulk_shared_global(shared.data, in, 16, &shared.bar, CachePolicy{policy});
  }
  mbarrier_wait_parity(&shared.bar, 0);
}

KB_GLOBAL void bulk_load_kernel(const unsigned char* in, uint32_t offset, uint32_t bytes) {
  Storage& shared = shared_storage<Storage>();
  start_barrier(shared);
  if (thread_index() == 0) {
    mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.bar, bytes);
    cp_async_bulk_shared_global(shared.data + offset, in, bytes, &shared.bar);
  }
  mbarrier_wait_parity(&shared.bar, 0);
}

// Four stages of a box each, `rounds` times around, a producer and consumers.
KB_GLOBAL void ring_kernel(KB_GRID_CONSTANT(TensorMap) map, uint32_t box_bytes, uint32_t rounds,
                           uint32_t* sums, bool fenced) {
  struct alignas(1024) Ring {
    alignas(1024) unsigned char stage[4][16 * 1024];
    Mbarrier full[4];
    Mbarrier empty[4];
  };
  Ring& ring = shared_storage<Ring>();
  if (thread_index() == 0) {
    for (uint32_t s = 0; s < 4; ++s) {
      mbarrier_init(&ring.full[s], 1);
      mbarrier_init(&ring.empty[s], kThreads);
    }
    if (fenced) fence_mbarrier_init_release_cluster();
  }
  bar_sync();
  if (thread_index() < kThreads) {
    if (thread_index() == 0) {
      for (uint32_t i = 0; i < 4 * rounds; ++i) {
        const uint32_t s = i % 4;
        mbarrier_wait_parity(&ring.empty[s], (i / 4 & 1) ^ 1);
        mbarrier_arrive_expect_tx(sem_release, scope_cta, &ring.full[s], box_bytes);
        cp_async_bulk_tensor_2d_shared_global(ring.stage[s], &map, 0, 0, &ring.full[s]);
      }
    }
  } else {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 4 * rounds; ++i) {
      const uint32_t s = i % 4;
      mbarrier_wait_parity(&ring.full[s], i / 4 & 1);
      sum += reinterpret_cast<const uint32_t*>(ring.stage[s])[thread_index()];
      mbarrier_arrive(sem_release, scope_cta, &ring.empty[s]);
    }
    sums[thread_index() - kThreads] = sum;
  }
}

}  // namespace

KB_EXPORT int run_load(char* message, const TensorMap* map, const Box* box, void* out,
                       uint32_t out_bytes, uint32_t fault) {
  RUN(rt::launch(load_kernel, config(), *map, *box, out, out_bytes, fault));
}

KB_EXPORT int run_multicast(char* message, const TensorMap* map, const Box* box, void* out,
                            uint32_t out_bytes, uint32_t mask, uint32_t ctas) {
  RUN(rt::launch(multicast_kernel, config(ctas), *map, *box, static_cast<unsigned char*>(out),
                 out_bytes, mask));
}

KB_EXPORT int run_pair(char* message, const TensorMap* map, const Box* box, void* out,
                       uint32_t bar_rank, uint32_t ctas) {
  RUN(rt::launch(pair_kernel, config(ctas), *map, *box, static_cast<unsigned char*>(out),
                 bar_rank));
}

KB_EXPORT int run_peer(char* message, const void* in, void* out, uint32_t bytes) {
  RUN(rt::launch(peer_kernel, config(2), static_cast<const unsigned char*>(in),
                 static_cast<unsigned char*>(out), bytes));
}

KB_EXPORT int run_store(char* message, const TensorMap* map, const Box* box, const void* in,
                        uint32_t in_bytes, uint32_t fault) {
  RUN(rt::launch(store_kernel, config(), *map, *box, in, in_bytes, fault));
}

KB_EXPORT int run_plain(char* message, const void* in, void* out, uint32_t bytes, uint32_t* seen) {
  RUN(rt::launch(plain_kernel, config(), static_cast<const unsigned char*>(in),
                 static_cast<unsigned char*>(out), bytes, seen));
}

KB_EXPORT int run_groups(char* message, const void* in, void* out, uint32_t* seen) {
  RUN(rt::launch(groups_kernel, config(), static_cast<const unsigned char*>(in),
                 static_cast<unsigned char*>(out), seen));
}

KB_EXPORT int run_cp_async(char* message, const void* in, void* out, uint32_t bytes, int by_barrier,
                           uint32_t fault) {
  RUN(rt::launch(cp_async_kernel, config(), static_cast<const unsigned char*>(in),
                 static_cast<unsigned char*>(out), bytes, by_barrier != 0, fault));
}

KB_EXPORT int run_policy(char* message, const void* in, uint64_t policy) {
  RUN(rt::launch(policy_kernel, config(), in, policy));
}

KB_EXPORT int run_bulk_load(char* message, const void* in, uint32_t offset, uint32_t bytes) {
  RUN(rt::launch(bulk_load_kernel, config(), static_cast<const unsigned char*>(in), offset, bytes));
}

KB_EXPORT int run_ring(char* message, const TensorMap* map, uint32_t box_bytes, uint32_t rounds,
                       uint32_t* sums, int fenced) {
  rt::LaunchConfig launch = config();
  launch.threads = 2 * kThreads;
  launch.shared_bytes = 68 * 1024;
  RUN(rt::launch(ring_kernel, launch, *map, box_bytes, rounds, sums, fenced != 0));
}
