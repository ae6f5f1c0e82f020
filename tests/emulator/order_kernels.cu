// Small kernels for test_emu_order.py: who waits for which phase, within which scope, by which
// lane. Each is right, or has the one fault that its name says.
#include <atomic>
#include <memory>

#include "entry.cuh"
#include "ptx/cluster.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/red.cuh"
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
    rt::launch(hand_backs,
               {.grid = {1, 1, 1}, .threads = 64, .shared_bytes = sizeof(RingStorage)}, count, out,
               waiters);
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
