// Waits with a bound: a hang ends in a report, not in a lost machine.
#pragma once

#include "state.inl"

namespace kb {

namespace soft {

// Always acquires at cluster scope: a commit is here an arrival by a thread, maybe of another CTA.
KB_DEVICE bool phase_done(const Mbarrier* bar, uint32_t parity) {
  return ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, bar, parity);
}

inline __device__ __noinline__ void wait_for_phase(const Mbarrier* bar, uint32_t parity) {
  const uint64_t start = now_ns();
  while (!phase_done(bar, parity)) {
    if (now_ns() - start > kWaitLimitNs) {
      const uint32_t base = ptx::smem_address(&shared_storage<Mbarrier>());
      fail(Fault::kMbarrierWait, ptx::smem_address(bar) - base, parity);
    }
  }
}

KB_DEVICE uint32_t acquire_word(const uint32_t* word) {
  auto* counter = const_cast<uint32_t*>(word);  // the compiler's load takes no pointer to const
  return __nv_atomic_load_n(counter, __NV_ATOMIC_ACQUIRE, __NV_THREAD_SCOPE_DEVICE);
}

inline __device__ __noinline__ void wait_for_word(const uint32_t* word, uint32_t value) {
  const uint64_t start = now_ns();
  uint32_t seen;
  while ((seen = acquire_word(word)) < value) {
    if (now_ns() - start > kWaitLimitNs) fail(Fault::kGlobalWait, value, seen);
    __nanosleep(256);
  }
}

inline __device__ __noinline__ uint32_t wait_for_change(const uint32_t* word, uint32_t before,
                                                        uint32_t mask) {
  const uint64_t start = now_ns();
  uint32_t seen;
  while ((((seen = acquire_word(word)) ^ before) & mask) == 0) {
    if (now_ns() - start > kWaitLimitNs) fail(Fault::kGlobalWait, before ^ mask, seen);
    __nanosleep(256);
  }
  return seen;
}

}  // namespace soft

template <typename Sem, typename Scope>
KB_DEVICE void mbarrier_wait_parity(Sem, Scope, const Mbarrier* bar, uint32_t parity) {
  if (!soft::phase_done(bar, parity)) soft::wait_for_phase(bar, parity);
}

KB_DEVICE void global_wait_at_least(const uint32_t* word, uint32_t value) {
  if (soft::acquire_word(word) < value) soft::wait_for_word(word, value);
}

KB_DEVICE uint32_t global_wait_changed(const uint32_t* word, uint32_t before, uint32_t mask) {
  const uint32_t seen = soft::acquire_word(word);
  return ((seen ^ before) & mask) != 0 ? seen : soft::wait_for_change(word, before, mask);
}

}  // namespace kb
