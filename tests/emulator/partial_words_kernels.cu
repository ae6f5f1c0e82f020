// Threads that share a word of shared memory, each with its half: no race, and each half has its
// own order and its own proxy fence.
#include "entry.cuh"
#include "ptx/fence.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"

using namespace kb;

namespace {

enum Fault : int {
  kRight = 0,
  kSameHalf,      // two threads write one half
  kNoBarrier,     // a thread reads the other's half at once
  kNoLowFence,    // who writes low halves does not fence before the bulk store
  kNoHighFence,   // who writes high halves does not
  kWholeTooSoon,  // a whole word is written over both halves at once
};

inline constexpr uint32_t kThreads = 64;

struct SharedStorage {
  alignas(16) uint16_t halves[kThreads];
};

KB_GLOBAL void halves(uint16_t* out, uint32_t* neighbours, int fault) {
  auto& storage = shared_storage<SharedStorage>();
  const uint32_t thread = ptx::thread_index();
  storage.halves[fault == kSameHalf ? thread & ~1u : thread] = static_cast<uint16_t>(thread);
  uint32_t sum = storage.halves[fault == kSameHalf ? thread & ~1u : thread];
  if (fault == kWholeTooSoon && thread == 0) *reinterpret_cast<uint32_t*>(&storage.halves[2]) = 7;
  const uint32_t unfenced = fault == kNoLowFence ? 0 : fault == kNoHighFence ? 1 : 2;
  if (thread % 2 != unfenced) ptx::fence_proxy_async(ptx::space_shared_cta);
  if (fault != kNoBarrier) ptx::bar_sync();
  sum += storage.halves[thread ^ 1];
  ptx::bar_sync();
  if (thread == 0) {
    ptx::cp_async_bulk_global_shared(out, storage.halves, sizeof(storage.halves));
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group<0>();
  }
  neighbours[thread] = sum;
}

}  // namespace

KB_EXPORT int run_halves(uint16_t* out, uint32_t* neighbours, int fault, char* message) {
  return guarded(message, 256, [&] {
    rt::launch(halves,
               {.grid = {1, 1, 1}, .threads = kThreads, .shared_bytes = sizeof(SharedStorage)}, out,
               neighbours, fault);
  });
}
