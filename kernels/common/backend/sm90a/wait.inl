#pragma once

namespace kb {

template <typename Sem, typename Scope>
KB_DEVICE void mbarrier_wait_parity(Sem sem, Scope scope, const Mbarrier* bar, uint32_t parity) {
  // try_wait suspends the thread for a while: nothing more is needed between tries.
  while (!ptx::mbarrier_try_wait_parity(sem, scope, bar, parity)) {
  }
}

KB_DEVICE void global_wait_at_least(const uint32_t* word, uint32_t value) {
  auto* counter = const_cast<uint32_t*>(word);  // the compiler's load takes no pointer to const
  while (__nv_atomic_load_n(counter, __NV_ATOMIC_ACQUIRE, __NV_THREAD_SCOPE_DEVICE) < value) {
    __nanosleep(64);
  }
}

// The whole grid waits for it: polled without a pause.
KB_DEVICE uint32_t global_wait_changed(const uint32_t* word, uint32_t before, uint32_t mask) {
  auto* flags = const_cast<uint32_t*>(word);
  uint32_t seen;
  do {
    seen = __nv_atomic_load_n(flags, __NV_ATOMIC_ACQUIRE, __NV_THREAD_SCOPE_DEVICE);
  } while (((seen ^ before) & mask) == 0);
  return seen;
}

}  // namespace kb
