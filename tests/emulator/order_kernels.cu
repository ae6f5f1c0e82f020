// Small kernels for test_emu_order.py: who waits for which phase, within which scope, by which
// lane. Each is right, or has the one fault that its name says.
#include <atomic>
#include <memory>

#include "entry.cuh"
#include "ptx/cluster.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/red.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"
#include "wait.cuh"

using namespace kb;

namespace {

struct RingStorage {
  Mbarrier full;
  Mbarrier empty;
  uint32_t slot;
};

enum Waiters : int {
  kElectedWaits = 0,  // the elected lane waits in the loop, all lanes once at the end
  kLanesInTurn,       // another lane each time, in step by bar.warp.sync
  kOutOfStep,         // another lane each time, without: a lane is lapped
};

// Warp 0 fills a slot `count` times; warp 1 reads it and hands it back.
KB_GLOBAL void hand_backs(uint32_t count, uint32_t* out, int waiters) {
  auto& storage = shared_storage<RingStorage>();
  if (ptx::thread_index() == 0) {
    ptx::mbarrier_init(&storage.full, 1);
    ptx::mbarrier_init(&storage.empty, 1);
  }
  ptx::bar_sync();
  if (ptx::warp_index() == 1) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < count; ++i) {
      mbarrier_wait_parity(&storage.full, i & 1);
      sum += storage.slot;
      ptx::bar_warp_sync();
      if (ptx::lane_index() == 0) {
        ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &storage.empty);
      }
    }
    if (ptx::lane_index() == 0) out[0] = sum;
    return;
  }
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t loader = waiters == kElectedWaits ? 0 : i % 3;
    if (ptx::lane_index() == loader) {
      mbarrier_wait_parity(&storage.empty, (i & 1) ^ 1);
      storage.slot = i;
      ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &storage.full);
    }
    if (waiters == kLanesInTurn) ptx::bar_warp_sync();
  }
  if (waiters == kElectedWaits) mbarrier_wait_parity(&storage.empty, (count & 1) ^ 1);
}

struct PairStorage {
  Mbarrier ready;
  Mbarrier taken;
  uint32_t value;
};

enum PairFault : int {
  kClusterScope = 0,  // right
  kCtaScope,          // the wait for the other CTA's value acquires at scope cta
  kLaneAcquires,      // lane 0 alone waits, whichever lane was elected reads
  kAsyncStore,        // no fault: the value comes by st.async
  kAsyncCtaScope,     // it does, and the wait acquires at scope cta
};

// Each CTA of a pair stores into the other's memory and arrives there.
KB_GLOBAL void exchange_in_pair(uint32_t* out, int fault) {
  auto& storage = shared_storage<PairStorage>();
  const uint32_t rank = ptx::cluster_ctarank();
  if (ptx::thread_index() == 0) {
    ptx::mbarrier_init(&storage.ready, 1);
    ptx::mbarrier_init(&storage.taken, 1);
    ptx::fence_mbarrier_init_release_cluster();
  }
  ptx::barrier_cluster_arrive(ptx::sem_release);
  ptx::barrier_cluster_wait(ptx::sem_acquire);
  const bool async = fault == kAsyncStore || fault == kAsyncCtaScope;
  if (async && ptx::elect_sync()) {
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, &storage.ready,
                                   sizeof storage.value);
    ptx::st_async_shared_cluster(ptx::mapa(&storage.value, rank ^ 1), rank + 1,
                                 ptx::mapa(&storage.ready, rank ^ 1));
  } else if (!async && ptx::elect_sync()) {
    ptx::st_shared_cluster(ptx::mapa(&storage.value, rank ^ 1), rank + 1);
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::mapa(&storage.ready, rank ^ 1));
  }
  if (fault == kCtaScope || fault == kAsyncCtaScope) {
    mbarrier_wait_parity(ptx::sem_acquire, ptx::scope_cta, &storage.ready, 0);
  } else if (fault != kLaneAcquires || ptx::lane_index() == 0) {
    mbarrier_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &storage.ready, 0);
  }
  if (ptx::elect_sync()) {
    out[ptx::cta_index().x] = storage.value;
    // The CTA's own barrier: scope cta is enough.
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &storage.taken);
  }
  mbarrier_wait_parity(&storage.taken, 0);
  ptx::barrier_cluster_arrive(ptx::sem_release);
  ptx::barrier_cluster_wait(ptx::sem_acquire);
}

// CTAs come by number, and each looks at the one before: out[number] is 1 if that has come and not
// gone on, 2 if it has.
KB_GLOBAL void look_back(uint32_t* states, uint32_t* numbers, uint32_t* out) {
  if (ptx::thread_index() != 0) return;
  const uint32_t number = ptx::atom_relaxed_gpu_global_add_u32(numbers, 1);
  ptx::red_release_gpu_global_add_u32(&states[number], 1);
  if (number > 0) {
    global_wait_at_least(&states[number - 1], 1);
    out[number] = ptx::atom_relaxed_gpu_global_add_u32(&states[number - 1], 0);
  }
  ptx::red_release_gpu_global_add_u32(&states[number], 1);
}

// Each CTA waits for a neighbour: that of lower index, which may have started later, or the other.
KB_GLOBAL void in_turn(uint32_t* states, uint32_t* out, int upwards) {
  if (ptx::thread_index() != 0) return;
  const uint32_t cta = ptx::cta_index().x;
  const uint32_t neighbour = upwards != 0 ? cta + 1 : cta - 1;
  if (neighbour < ptx::cta_count().x) global_wait_at_least(&states[neighbour], 1);
  out[cta] = cta + 1;
  ptx::red_release_gpu_global_add_u32(&states[cta], 1);
}

enum LastFault : int {
  kFenced = 0,   // right
  kCtaFence,     // the fence before the atomic has scope cta
  kNoFence,      // none before the atomic
  kNoFenceAfter  // none between the atomic and the reads
};

// The last CTA to come adds up what every CTA has left in global memory.
KB_GLOBAL void sum_by_last(uint32_t* parts, uint32_t* counter, uint32_t* out, int fault) {
  const uint32_t ctas = ptx::cta_count().x;
  if (ptx::thread_index() != 0) return;
  parts[ptx::cta_index().x] = ptx::cta_index().x + 1;
  if (fault == kCtaFence) {
    ptx::fence(ptx::sem_acq_rel, ptx::scope_cta);
  } else if (fault != kNoFence) {
    ptx::fence(ptx::sem_acq_rel, ptx::scope_gpu);
  }
  if (ptx::atom_relaxed_gpu_global_add_u32(counter, 1) + 1 != ctas) return;
  if (fault != kNoFenceAfter) ptx::fence(ptx::sem_acq_rel, ptx::scope_gpu);
  uint32_t sum = 0;
  for (uint32_t i = 0; i < ctas; ++i) sum += parts[i];
  out[0] = sum;
}

// Every CTA reads a count, and the last one that has clears it for the next launch.
KB_GLOBAL void clear_by_last(uint32_t* count, uint32_t* counter, uint32_t* out, int fault) {
  out[ptx::cta_index().x] = *count;
  ptx::bar_sync();
  if (ptx::thread_index() != 0) return;
  if (fault == kCtaFence) {
    ptx::fence(ptx::sem_acq_rel, ptx::scope_cta);
  } else if (fault != kNoFence) {
    ptx::fence(ptx::sem_acq_rel, ptx::scope_gpu);
  }
  if (ptx::atom_relaxed_gpu_global_add_u32(counter, 1) + 1 == ptx::cta_count().x) *count = 0;
}

// The threads of CTA 0 arrive and exit. Of CTA 1 one stores a value late; the others may not go on
// before.
KB_GLOBAL void arrive_and_exit(uint32_t* out) {
  auto& storage = shared_storage<PairStorage>();
  const uint32_t thread = ptx::thread_index();
  if (ptx::cluster_ctarank() == 1 && thread == 31) {
    for (int i = 0; i < 64; ++i) ptx::redux_sync_add(i, 1u << 31);  // others may run
    storage.value = 7;
  }
  ptx::barrier_cluster_arrive(ptx::sem_release);
  if (ptx::cluster_ctarank() == 0) return;
  ptx::barrier_cluster_wait(ptx::sem_acquire);
  out[thread] = storage.value;
}

// Which lanes are elected: of the whole warp, of eight lanes, and of the whole warp again.
KB_GLOBAL void elect_three(uint32_t* out) {
  const uint32_t lane = ptx::lane_index();
  if (ptx::elect_sync()) out[0] = lane;
  if (lane >= 8 && lane < 16 && ptx::elect_sync(0xff00)) out[1] = lane;
  if (ptx::elect_sync()) out[2] = lane;
}

struct RefilledStorage {
  alignas(16) uint32_t words[32];
  Mbarrier full;
  Mbarrier empty;
};

enum RefillFault : int {
  kReaderFences = 0,  // before it hands the words back
  kNobodyFences,      // in order, but through two proxies
  kNoOrder,           // the refill does not wait for the words to be handed back
};

// Warp 0 has words copied twice to the same place; warp 1 reads them by loads, each time.
KB_GLOBAL void refill(const uint32_t* in, uint32_t* out, int fault) {
  auto& storage = shared_storage<RefilledStorage>();
  const uint32_t lane = ptx::lane_index();
  if (ptx::thread_index() == 0) {
    ptx::mbarrier_init(&storage.full, 1);
    ptx::mbarrier_init(&storage.empty, 32);
    ptx::fence_mbarrier_init_release_cluster();
  }
  ptx::bar_sync();
  for (uint32_t i = 0; i < 2; ++i) {
    if (ptx::warp_index() == 1) {
      mbarrier_wait_parity(&storage.full, i);
      out[32 * i + lane] = storage.words[lane];
      if (fault == kReaderFences) ptx::fence_proxy_async(ptx::space_shared_cta);
      ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &storage.empty);
    } else if (lane == 0) {
      if (fault != kNoOrder) mbarrier_wait_parity(&storage.empty, i ^ 1);
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, &storage.full,
                                     sizeof storage.words);
      ptx::cp_async_bulk_shared_global(storage.words, in + 32 * i, sizeof storage.words,
                                       &storage.full);
      if (fault == kNoOrder) mbarrier_wait_parity(&storage.full, i);
    }
  }
}

struct Counted {
  explicit Counted(uint32_t value) : value(value) {}
  uint32_t value;
};

KB_GLOBAL void store_one(uint32_t* out, uint32_t value) {
  if (ptx::thread_index() == 0) out[0] = value;
}

template <typename Body>
int guarded_call(char* message, Body&& body) {
  return guarded(message, 256, body);
}

}  // namespace

KB_EXPORT int run_hand_backs(uint32_t count, int waiters, uint32_t* out, char* message) {
  return guarded_call(message, [&] {
    rt::launch(hand_backs, {.grid = {1, 1, 1}, .threads = 64, .shared_bytes = sizeof(RingStorage)},
               count, out, waiters);
  });
}

KB_EXPORT int run_exchange_in_pair(int fault, uint32_t* out, char* message) {
  return guarded_call(message, [&] {
    rt::launch(
        exchange_in_pair,
        {.grid = {4, 1, 1}, .threads = 32, .shared_bytes = sizeof(PairStorage), .cluster = 2}, out,
        fault);
  });
}

KB_EXPORT int run_arrive_and_exit(uint32_t* out, char* message) {
  return guarded_call(message, [&] {
    rt::launch(
        arrive_and_exit,
        {.grid = {2, 1, 1}, .threads = 32, .shared_bytes = sizeof(PairStorage), .cluster = 2}, out);
  });
}

KB_EXPORT int run_last(bool clears, int fault, uint32_t* words, char* message) {
  return guarded_call(message, [&] {
    const rt::LaunchConfig config{.grid = {4, 1, 1}, .threads = 64, .shared_bytes = 0};
    rt::launch(clears ? clear_by_last : sum_by_last, config, words, words + 4, words + 5, fault);
  });
}

KB_EXPORT int run_look_back(uint32_t* words, char* message) {
  return guarded_call(message, [&] {
    rt::launch(look_back, {.grid = {4, 1, 1}, .threads = 32, .shared_bytes = 0}, words, words + 4,
               words + 5);
  });
}

KB_EXPORT int run_in_turn(uint32_t ctas, uint32_t threads, int upwards, uint32_t* words,
                          char* message) {
  return guarded_call(message, [&] {
    rt::launch(in_turn, {.grid = {ctas, 1, 1}, .threads = threads, .shared_bytes = 0}, words,
               words + ctas, upwards);
  });
}

KB_EXPORT int run_elect_three(uint32_t* out, char* message) {
  return guarded_call(message, [&] {
    rt::launch(elect_three, {.grid = {1, 1, 1}, .threads = 32, .shared_bytes = 0}, out);
  });
}

KB_EXPORT int run_refill(const uint32_t* in, int fault, uint32_t* out, char* message) {
  return guarded_call(message, [&] {
    rt::launch(refill, {.grid = {1, 1, 1}, .threads = 64, .shared_bytes = sizeof(RefilledStorage)},
               in, out, fault);
  });
}

// What a step's host code may well have: a local static that is computed, shared ownership, a
// counter of calls.
KB_EXPORT int run_local_static(uint32_t* out, char* message) {
  return guarded_call(message, [&] {
    static const auto first = std::make_shared<const Counted>(out[0]);
    static std::atomic<uint32_t> calls = 0;
    const std::shared_ptr<const Counted> shared = first;
    const uint32_t value = shared->value + calls.fetch_add(1);
    rt::launch(store_one, {.grid = {1, 1, 1}, .threads = 32, .shared_bytes = 0}, out, value);
  });
}
