#pragma once

namespace kb {

template <typename Sem, typename Scope>
KB_DEVICE void mbarrier_wait_parity(Sem, Scope, const Mbarrier* bar, uint32_t parity) {
  emu::mbarrier_wait_parity(bar, parity, ptx::detail::kAcquires<Sem>, ptx::detail::kScope<Scope>);
}

KB_DEVICE void global_wait_at_least(const uint32_t* word, uint32_t value) {
  emu::global_wait_at_least(word, value);
}

KB_DEVICE uint32_t global_wait_changed(const uint32_t* word, uint32_t before, uint32_t mask) {
  return emu::global_wait_changed(word, before, mask);
}

}  // namespace kb
