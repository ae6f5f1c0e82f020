#pragma once

#include <type_traits>

namespace kb::ptx {

namespace detail {

template <typename Sem>
inline constexpr bool kReleases = std::is_same_v<Sem, SemRelease>;
template <typename Sem>
inline constexpr bool kAcquires = std::is_same_v<Sem, SemAcquire>;
template <typename Scope>
inline constexpr emu::Scope kScope = std::is_same_v<Scope, ScopeCta>       ? emu::Scope::kCta
                                     : std::is_same_v<Scope, ScopeCluster> ? emu::Scope::kCluster
                                                                           : emu::Scope::kGpu;

}  // namespace detail

KB_DEVICE void mbarrier_init(Mbarrier* bar, uint32_t count) {
  emu::mbarrier_init(bar, count);
}

KB_DEVICE void mbarrier_inval(Mbarrier* bar) {
  emu::mbarrier_inval(bar);
}

template <typename Sem, typename Scope>
KB_DEVICE void mbarrier_arrive(Sem, Scope, Mbarrier* bar, uint32_t count) {
  emu::mbarrier_arrive(bar, count, detail::kReleases<Sem>);
}

template <typename Sem>
KB_DEVICE void mbarrier_arrive(Sem, ScopeCluster, ClusterAddress<Mbarrier> bar, uint32_t count) {
  emu::mbarrier_arrive_remote(bar.bits, count, detail::kReleases<Sem>);
}

template <typename Sem, typename Scope>
KB_DEVICE void mbarrier_arrive_drop(Sem, Scope, Mbarrier* bar) {
  emu::mbarrier_arrive_drop(bar, detail::kReleases<Sem>);
}

template <typename Sem, typename Scope>
KB_DEVICE void mbarrier_arrive_expect_tx(Sem, Scope, Mbarrier* bar, uint32_t bytes) {
  emu::mbarrier_arrive_expect_tx(bar, bytes, detail::kReleases<Sem>);
}

template <typename Sem>
KB_DEVICE void mbarrier_arrive_expect_tx(Sem, ScopeCluster, ClusterAddress<Mbarrier> bar,
                                         uint32_t bytes) {
  emu::mbarrier_arrive_expect_tx_remote(bar.bits, bytes, detail::kReleases<Sem>);
}

template <typename Scope>
KB_DEVICE void mbarrier_expect_tx(SemRelaxed, Scope, Mbarrier* bar, uint32_t bytes) {
  emu::mbarrier_expect_tx(bar, bytes);
}

KB_DEVICE void mbarrier_expect_tx(SemRelaxed, ScopeCluster, ClusterAddress<Mbarrier> bar,
                                  uint32_t bytes) {
  emu::mbarrier_expect_tx_remote(bar.bits, bytes);
}

template <typename Scope>
KB_DEVICE void mbarrier_complete_tx(SemRelaxed, Scope, Mbarrier* bar, uint32_t bytes) {
  emu::mbarrier_complete_tx(bar, bytes);
}

KB_DEVICE void mbarrier_complete_tx(SemRelaxed, ScopeCluster, ClusterAddress<Mbarrier> bar,
                                    uint32_t bytes) {
  emu::mbarrier_complete_tx_remote(bar.bits, bytes);
}

template <typename Sem, typename Scope>
KB_DEVICE bool mbarrier_try_wait_parity(Sem, Scope, const Mbarrier* bar, uint32_t parity) {
  return emu::mbarrier_test_wait_parity(bar, parity, detail::kAcquires<Sem>, detail::kScope<Scope>);
}

template <typename Sem, typename Scope>
KB_DEVICE bool mbarrier_try_wait_parity(Sem, Scope, const Mbarrier* bar, uint32_t parity,
                                        uint32_t) {
  return emu::mbarrier_test_wait_parity(bar, parity, detail::kAcquires<Sem>, detail::kScope<Scope>);
}

template <typename Sem, typename Scope>
KB_DEVICE bool mbarrier_test_wait_parity(Sem, Scope, const Mbarrier* bar, uint32_t parity) {
  return emu::mbarrier_test_wait_parity(bar, parity, detail::kAcquires<Sem>, detail::kScope<Scope>);
}

}  // namespace kb::ptx
