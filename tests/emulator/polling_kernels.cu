// Loops of a step's own that poll two mbarriers at once while copies are on their way, and what
// nothing ends.
#include "entry.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"

using namespace kb;

namespace {

constexpr uint32_t kWords = 32;

enum Fault : int {
  kRight = 0,
  kTooManyBytes,  // the second barrier expects more than its copy brings
  kBothGoOn,      // and two threads go on to arrive on a barrier while they poll
};

struct SharedStorage {
  alignas(16) uint32_t words[2][kWords];
  Mbarrier full[2];
  Mbarrier beat;
};

KB_GLOBAL void add_two(const uint32_t* in, uint32_t* out, int fault) {
  auto& shared = shared_storage<SharedStorage>();
  const uint32_t thread = ptx::thread_index();
  if (thread == 0) {
    for (auto& bar : shared.full) ptx::mbarrier_init(&bar, 1);
    ptx::mbarrier_init(&shared.beat, 1);
    ptx::fence_mbarrier_init_release_cluster();
  }
  ptx::bar_sync();
  if (thread == 0) {
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t more = fault != kRight && i == 1 ? 16 : 0;
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, &shared.full[i],
                                     sizeof shared.words[i] + more);
      ptx::cp_async_bulk_shared_global(shared.words[i], in + i * kWords, sizeof shared.words[i],
                                       &shared.full[i]);
    }
  }
  bool x = false, y = false;
  while (!x || !y) {
    x = ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cta, &shared.full[0], 0);
    y = ptx::mbarrier_test_wait_parity(ptx::sem_acquire, ptx::scope_cta, &shared.full[1], 0);
    if (fault == kBothGoOn && thread == 0) {
      ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.beat);
    }
  }
  out[thread] = shared.words[0][thread] + shared.words[1][thread];
}

}  // namespace

KB_EXPORT int run_add_two(const uint32_t* in, uint32_t* out, int fault, char* message) {
  return guarded(message, 256, [&] {
    rt::launch(add_two,
               {.grid = {1, 1, 1}, .threads = kWords, .shared_bytes = sizeof(SharedStorage)}, in,
               out, fault);
  });
}
