#pragma once

#include "text.inl"

namespace kb::ptx {

KB_DEVICE void mbarrier_init(Mbarrier* bar, uint32_t count) {
  // clang-format off
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
               :: "r"(smem_address(bar)), "r"(count) : "memory");
  // clang-format on
}

KB_DEVICE void mbarrier_inval(Mbarrier* bar) {
  // clang-format off
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" :: "r"(smem_address(bar)) : "memory");
  // clang-format on
}

template <typename Sem, typename Scope>
KB_DEVICE void mbarrier_arrive(Sem, Scope, Mbarrier* bar, uint32_t count) {
  // clang-format off
  asm volatile("mbarrier.arrive.%2.%3.shared::cta.b64 _, [%0], %1;"
               :: "r"(smem_address(bar)), "r"(count),
                  "C"(detail::Text<Sem>::kValue), "C"(detail::Text<Scope>::kValue) : "memory");
  // clang-format on
}

template <typename Sem>
KB_DEVICE void mbarrier_arrive(Sem, ScopeCluster, ClusterAddress<Mbarrier> bar, uint32_t count) {
  // clang-format off
  asm volatile("mbarrier.arrive.%2.cluster.shared::cluster.b64 _, [%0], %1;"
               :: "r"(bar.bits), "r"(count), "C"(detail::Text<Sem>::kValue) : "memory");
  // clang-format on
}

template <typename Sem, typename Scope>
KB_DEVICE void mbarrier_arrive_drop(Sem, Scope, Mbarrier* bar) {
  // clang-format off
  asm volatile("mbarrier.arrive_drop.%1.%2.shared::cta.b64 _, [%0];"
               :: "r"(smem_address(bar)),
                  "C"(detail::Text<Sem>::kValue), "C"(detail::Text<Scope>::kValue) : "memory");
  // clang-format on
}

template <typename Sem, typename Scope>
KB_DEVICE void mbarrier_arrive_expect_tx(Sem, Scope, Mbarrier* bar, uint32_t bytes) {
  // clang-format off
  asm volatile("mbarrier.arrive.expect_tx.%2.%3.shared::cta.b64 _, [%0], %1;"
               :: "r"(smem_address(bar)), "r"(bytes),
                  "C"(detail::Text<Sem>::kValue), "C"(detail::Text<Scope>::kValue) : "memory");
  // clang-format on
}

template <typename Sem>
KB_DEVICE void mbarrier_arrive_expect_tx(Sem, ScopeCluster, ClusterAddress<Mbarrier> bar,
                                         uint32_t bytes) {
  // clang-format off
  asm volatile("mbarrier.arrive.expect_tx.%2.cluster.shared::cluster.b64 _, [%0], %1;"
               :: "r"(bar.bits), "r"(bytes), "C"(detail::Text<Sem>::kValue) : "memory");
  // clang-format on
}

template <typename Scope>
KB_DEVICE void mbarrier_expect_tx(SemRelaxed, Scope, Mbarrier* bar, uint32_t bytes) {
  // clang-format off
  asm volatile("mbarrier.expect_tx.relaxed.%2.shared::cta.b64 [%0], %1;"
               :: "r"(smem_address(bar)), "r"(bytes), "C"(detail::Text<Scope>::kValue) : "memory");
  // clang-format on
}

KB_DEVICE void mbarrier_expect_tx(SemRelaxed, ScopeCluster, ClusterAddress<Mbarrier> bar,
                                  uint32_t bytes) {
  // clang-format off
  asm volatile("mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%0], %1;"
               :: "r"(bar.bits), "r"(bytes) : "memory");
  // clang-format on
}

template <typename Scope>
KB_DEVICE void mbarrier_complete_tx(SemRelaxed, Scope, Mbarrier* bar, uint32_t bytes) {
  // clang-format off
  asm volatile("mbarrier.complete_tx.relaxed.%2.shared::cta.b64 [%0], %1;"
               :: "r"(smem_address(bar)), "r"(bytes), "C"(detail::Text<Scope>::kValue) : "memory");
  // clang-format on
}

KB_DEVICE void mbarrier_complete_tx(SemRelaxed, ScopeCluster, ClusterAddress<Mbarrier> bar,
                                    uint32_t bytes) {
  // clang-format off
  asm volatile("mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%0], %1;"
               :: "r"(bar.bits), "r"(bytes) : "memory");
  // clang-format on
}

template <typename Sem, typename Scope>
KB_DEVICE bool mbarrier_try_wait_parity(Sem, Scope, const Mbarrier* bar, uint32_t parity) {
  uint32_t done;
  // clang-format off
  asm volatile("{.reg .pred p; mbarrier.try_wait.parity.%3.%4.shared::cta.b64 p, [%1], %2; "
               "selp.b32 %0, 1, 0, p;}"
               : "=r"(done)
               : "r"(smem_address(bar)), "r"(parity),
                 "C"(detail::Text<Sem>::kValue), "C"(detail::Text<Scope>::kValue)
               : "memory");
  // clang-format on
  return done != 0;
}

template <typename Sem, typename Scope>
KB_DEVICE bool mbarrier_try_wait_parity(Sem, Scope, const Mbarrier* bar, uint32_t parity,
                                        uint32_t suspend_ns) {
  uint32_t done;
  // clang-format off
  asm volatile("{.reg .pred p; mbarrier.try_wait.parity.%4.%5.shared::cta.b64 p, [%1], %2, %3; "
               "selp.b32 %0, 1, 0, p;}"
               : "=r"(done)
               : "r"(smem_address(bar)), "r"(parity), "r"(suspend_ns),
                 "C"(detail::Text<Sem>::kValue), "C"(detail::Text<Scope>::kValue)
               : "memory");
  // clang-format on
  return done != 0;
}

template <typename Sem, typename Scope>
KB_DEVICE bool mbarrier_test_wait_parity(Sem, Scope, const Mbarrier* bar, uint32_t parity) {
  uint32_t done;
  // clang-format off
  asm volatile("{.reg .pred p; mbarrier.test_wait.parity.%3.%4.shared::cta.b64 p, [%1], %2; "
               "selp.b32 %0, 1, 0, p;}"
               : "=r"(done)
               : "r"(smem_address(bar)), "r"(parity),
                 "C"(detail::Text<Sem>::kValue), "C"(detail::Text<Scope>::kValue)
               : "memory");
  // clang-format on
  return done != 0;
}

}  // namespace kb::ptx
