// Small kernels for the emulator's core: each is right, or has the one fault that its name says.
#include "entry.cuh"
#include "ptx/cluster.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/red.cuh"
#include "ptx/warp.cuh"
#include "wait.cuh"

using namespace kb;

namespace {

enum Fault : int {
  kRight = 0,
  kNoArrival,    // the consumer never says that a stage is empty
  kNoWait,       // the producer does not wait for it
  kWrongParity,  // the consumer waits for the phase before
  kTwoArrivals,  // the consumer arrives twice
  kRecursion,
  kWildStore,
  kUninitialized,  // barriers are used before anybody has initialized them
  kInitRace,       // no barrier after the initialization
  kReinit,         // initialized twice without inval
  kPastTheEnd,     // a store beyond SharedStorage
  kDivergent,      // lanes of a warp execute different collectives
  kMissingWarp,    // one warp does not come to a named barrier
  kOtherCount,     // participants of a named barrier disagree
  kDivision,
  kReadPastTheEnd,
  kSameBytes,
  kTooFewExpected,  // arrive_drop to nothing
  kNoStore,         // the producer hands over a slot that it has not written
  kMisaligned,
  kVectorBeyond,  // half of a load lies beyond its buffer
  kOwnArray,      // a thread's own array is read beyond its end
  kOwnArrayToo,   // and two CTAs store the same bytes
  kStartsOver,    // the consumer begins again with the first phase, when the second one is full
};

struct SharedStorage {
  Mbarrier full[2];
  Mbarrier empty[2];
  uint32_t slot[2];
  uint32_t sum;
};

// Roles as functions, as in a step: reports name them.
KB_DEVICE void load_warp(SharedStorage& storage, uint32_t count, int fault) {
  uint32_t stage = 0;
  uint32_t phase = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (fault != kNoWait) mbarrier_wait_parity(&storage.empty[stage], phase ^ 1);
    if (ptx::elect_sync()) {
      if (fault != kNoStore) storage.slot[stage] = i;
      ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &storage.full[stage]);
    }
    ptx::bar_warp_sync();
    stage ^= 1;
    if (stage == 0) phase ^= 1;
  }
}

KB_DEVICE void sum_warp(SharedStorage& storage, uint32_t count, uint32_t* out, int fault) {
  uint32_t stage = 0;
  uint32_t phase = 0;
  uint32_t sum = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (fault == kStartsOver && i == 2) {
      mbarrier_wait_parity(&storage.full[1], 1);
      phase = 0;
    }
    mbarrier_wait_parity(&storage.full[stage], fault == kWrongParity ? phase ^ 1 : phase);
    sum += storage.slot[stage];
    ptx::bar_warp_sync();
    if (fault != kNoArrival && ptx::elect_sync()) {
      const uint32_t arrivals = fault == kTwoArrivals ? 2 : 1;
      ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &storage.empty[stage], arrivals);
    }
    stage ^= 1;
    if (stage == 0) phase ^= 1;
  }
  if (ptx::elect_sync()) out[ptx::cta_index().x] = sum;
}

__attribute__((noinline)) int recurse(int depth) {
  volatile char frame[512];
  frame[depth & 511] = static_cast<char>(depth);
  return depth < 0 ? 0 : recurse(depth + 1) + frame[depth & 511];
}

KB_GLOBAL void ring(uint32_t count, uint32_t* out, const volatile uint32_t* table, int fault) {
  auto& storage = shared_storage<SharedStorage>();
  if (ptx::thread_index() == 0 && fault != kUninitialized) {
    for (int stage = 0; stage < 2; ++stage) {
      ptx::mbarrier_init(&storage.full[stage], 1);
      if (fault == kReinit) ptx::mbarrier_init(&storage.full[stage], 1);
      ptx::mbarrier_init(&storage.empty[stage], 1);
    }
  }
  if (fault != kInitRace) ptx::bar_sync();
  if (fault == kRecursion && ptx::thread_index() == 3) out[0] = recurse(0);
  if (fault == kWildStore && ptx::thread_index() == 3) out[1u << 20] = 1;
  if (fault == kPastTheEnd && ptx::thread_index() == 3) (&storage.sum)[count] = 1;
  if (fault == kDivision) out[0] = count / (ptx::cta_index().x & 0);
  if (fault == kReadPastTheEnd && ptx::thread_index() == 3) storage.sum = table[4];
  if (fault == kMisaligned && ptx::thread_index() == 3) {
    *reinterpret_cast<volatile uint64_t*>(out + 1) = 1;
  }
  if (fault == kVectorBeyond && ptx::thread_index() == 3) {
    storage.sum = *reinterpret_cast<const volatile uint64_t*>(table + 4) & 1;
  }
  if ((fault == kOwnArray || fault == kOwnArrayToo) && ptx::thread_index() == 3) {
    volatile uint32_t own[4] = {};
    storage.sum = own[count / 5];
  }
  if ((fault == kSameBytes || fault == kOwnArrayToo) && ptx::thread_index() == 3) out[0] = 7;
  if (fault == kDivergent && ptx::warp_index() == 0) {
    if (ptx::lane_index() < 16) {
      ptx::bar_warp_sync();
    } else {
      ptx::vote_sync_any(true);
    }
  }
  if (fault == kMissingWarp && ptx::warp_index() == 0) ptx::bar_sync(3, 64);
  if (fault == kOtherCount) ptx::bar_sync(3, ptx::warp_index() == 0 ? 64 : 32);
  if (fault == kTooFewExpected && ptx::thread_index() == 0) {
    ptx::mbarrier_arrive_drop(ptx::sem_release, ptx::scope_cta, &storage.full[0]);
  }
  if (ptx::warp_index() == 0) {
    load_warp(storage, count, fault);
  } else {
    sum_warp(storage, count, out, fault);
  }
}

struct PairStorage {
  Mbarrier ready;
  uint32_t value;
};

// Each CTA of a pair sends its rank + 1 to the other and waits for the other's.
KB_GLOBAL void exchange(uint32_t* out, bool fenced, bool meets_at_exit) {
  auto& storage = shared_storage<PairStorage>();
  const uint32_t rank = ptx::cluster_ctarank();
  if (ptx::thread_index() == 0) {
    ptx::mbarrier_init(&storage.ready, 1);
    if (fenced) ptx::fence_mbarrier_init_release_cluster();
  }
  ptx::barrier_cluster_arrive(ptx::sem_release);
  ptx::barrier_cluster_wait(ptx::sem_acquire);
  if (ptx::thread_index() == 0) {
    ptx::st_shared_cluster(ptx::mapa(&storage.value, rank ^ 1), rank + 1);
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::mapa(&storage.ready, rank ^ 1));
  }
  if (meets_at_exit || rank == 0) {
    mbarrier_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &storage.ready, 0);
    if (ptx::thread_index() == 0) out[ptx::cta_index().x] = storage.value;
  }
  if (meets_at_exit) {
    ptx::barrier_cluster_arrive(ptx::sem_release);
    ptx::barrier_cluster_wait(ptx::sem_acquire);
  }
}

// Every CTA adds to a counter and waits for all of them.
KB_GLOBAL void meet(uint32_t* counter, uint32_t ctas) {
  if (ptx::thread_index() == 0) ptx::red_release_gpu_global_add_u32(counter, 1);
  global_wait_at_least(counter, ctas);
}

// The same barrier for any number of launches: the CTAs' shares add up to bit 31.
KB_GLOBAL void meet_in_turn(uint32_t* word, uint32_t ctas) {
  constexpr uint32_t kTurn = 1u << 31;
  const uint32_t before = *word;
  ptx::bar_warp_sync();
  if (ptx::thread_index() == 0) {
    const uint32_t share = ptx::cta_index().x == 0 ? kTurn - (ctas - 1) : 1;
    ptx::red_release_gpu_global_add_u32(word, share);
  }
  global_wait_changed(word, before, kTurn);
}

// Warp collectives against what PTX says of each.
KB_GLOBAL void collectives(uint32_t* out) {
  const uint32_t lane = ptx::lane_index();
  uint32_t* mine = out + lane * 8;
  mine[0] = ptx::shfl_sync_bfly(lane * 10, 5);
  mine[1] = ptx::shfl_sync_idx(lane * 10, 7);
  mine[2] = ptx::shfl_sync_up(lane * 10, 3);
  mine[3] = ptx::vote_sync_ballot(lane % 3 == 0);
  mine[4] = ptx::redux_sync_max(lane ^ 21);
  mine[5] = ptx::redux_sync_add(lane);
  mine[6] = ptx::elect_sync();
  mine[7] = lane >= 8 && lane < 16 ? ptx::redux_sync_add(1, 0xff00) : 0;
}

template <typename Body>
int guarded_call(char* message, Body&& body) {
  return guarded(message, 256, body);
}

}  // namespace

KB_EXPORT int run_ring(uint32_t ctas, uint32_t count, int fault, uint32_t* out, char* message) {
  return guarded_call(message, [&] {
    auto* table = static_cast<uint32_t*>(
        rt::device_malloc((fault == kVectorBeyond ? 5 : 4) * sizeof(uint32_t)));
    try {
      rt::launch(ring, {.grid = {ctas, 1, 1}, .threads = 64, .shared_bytes = sizeof(SharedStorage)},
                 count, out, table, fault);
    } catch (...) {
      rt::device_free(table);
      throw;
    }
    rt::device_free(table);
  });
}

KB_EXPORT int run_exchange(uint32_t ctas, bool fenced, bool meets, uint32_t* out, char* message) {
  return guarded_call(message, [&] {
    rt::launch(
        exchange,
        {.grid = {ctas, 1, 1}, .threads = 32, .shared_bytes = sizeof(PairStorage), .cluster = 2},
        out, fenced, meets);
  });
}

KB_EXPORT int run_meet(uint32_t ctas, bool cooperative, uint32_t* counter, char* message) {
  return guarded_call(message, [&] {
    rt::launch(meet,
               {.grid = {ctas, 1, 1}, .threads = 32, .shared_bytes = 0, .cooperative = cooperative},
               counter, ctas);
  });
}

KB_EXPORT int run_meet_in_turn(uint32_t ctas, bool cooperative, uint32_t* word, char* message) {
  return guarded_call(message, [&] {
    rt::launch(meet_in_turn,
               {.grid = {ctas, 1, 1}, .threads = 32, .shared_bytes = 0, .cooperative = cooperative},
               word, ctas);
  });
}

KB_EXPORT int run_collectives(uint32_t* out, char* message) {
  return guarded_call(message, [&] {
    rt::launch(collectives, {.grid = {1, 1, 1}, .threads = 32, .shared_bytes = 0}, out);
  });
}
