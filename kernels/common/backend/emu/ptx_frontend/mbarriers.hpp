// mbarriers (PTX ISA 9.1, 9.7.13.15): PTX's operands → the runtime's functions.
#pragma once

#include "memory.hpp"

namespace px {

using emu::Scope;

// mbarriers, by their address in the shared windows.
PX bool is_own(u32 bar) {
  return bar >> 24 == emu::cluster_ctarank();
}
PX void mbarrier_init(u32 bar, u32 count) {
  emu::mbarrier_init(cluster_at(bar), count);
}
PX void mbarrier_inval(u32 bar) {
  emu::mbarrier_inval(cluster_at(bar));
}
PX void mbarrier_arrive(u32 bar, u32 count, bool release) {
  if (is_own(bar)) return emu::mbarrier_arrive(cluster_at(bar), count, release);
  emu::mbarrier_arrive_remote(bar, count, release);
}
PX void mbarrier_arrive_drop(u32 bar, u32, bool release) {
  emu::mbarrier_arrive_drop(cluster_at(bar), release);
}
PX void mbarrier_arrive_expect_tx(u32 bar, u32 bytes, bool release) {
  if (is_own(bar)) return emu::mbarrier_arrive_expect_tx(cluster_at(bar), bytes, release);
  emu::mbarrier_arrive_expect_tx_remote(bar, bytes, release);
}
PX void mbarrier_arrive_drop_expect_tx(u32 bar, u32 bytes, bool release) {
  emu::mbarrier_expect_tx(cluster_at(bar), bytes);
  emu::mbarrier_arrive_drop(cluster_at(bar), release);
}
PX void mbarrier_expect_tx(u32 bar, u32 bytes) {
  if (is_own(bar)) return emu::mbarrier_expect_tx(cluster_at(bar), bytes);
  emu::mbarrier_expect_tx_remote(bar, bytes);
}
PX void mbarrier_complete_tx(u32 bar, u32 bytes) {
  if (is_own(bar)) return emu::mbarrier_complete_tx(cluster_at(bar), bytes);
  emu::mbarrier_complete_tx_remote(bar, bytes);
}
// A state token: the parity of the phase.
PX b64 mbarrier_state(u32 bar) {
  return emu::mbarrier_parity(cluster_at(bar));
}
PX bool mbarrier_test(u32 bar, u32 parity, bool acquire, Scope scope) {
  return emu::mbarrier_test_wait_parity(cluster_at(bar), parity, acquire, scope);
}

}  // namespace px
