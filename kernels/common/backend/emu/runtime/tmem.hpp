// Tensor memory of a CTA (PTX ISA 9.1, 9.7.16): cells, addresses and the checks that all its users
// share.
#pragma once

#include "core.hpp"
#include "mma.hpp"

namespace kb::emu {

struct TmemCells {
  alignas(64) uint32_t at[kTmemLanes][kTmemColumns];
};

// A TMEM address, lane << 16 | column, taken apart.
struct TmemAddress {
  uint32_t lane;
  uint32_t column;
  explicit TmemAddress(uint32_t bits) : lane(bits >> 16), column(bits & 0xffff) {}
};

// The shadow's cell is 16 lanes of a column.
inline constexpr uint32_t kTmemSlabs = kTmemLanes / 16;
constexpr uint32_t tmem_cell(uint32_t column, uint32_t lane) {
  return column * kTmemSlabs + lane / 16;
}

// The cells of a CTA, of which [column, column + count) must lie in one allocation of the CTA; a
// finding that ends the launch if not. `what` names the access.
TmemCells& tmem_columns(Cta& cta, uint32_t column, uint32_t count, Pc pc, const char* what);

// Notes the kernel's cta_group; a finding that ends the launch if operations disagree, or if there
// is no pair. Returns the other CTA of the pair, or null for cta_group::1.
Cta* tensor_group(uint32_t group, Pc pc, const char* what);

// tcgen05 operations do not follow a thread's other synchronization by themselves: PTX ISA 9.1,
// 9.7.16.6. `fenced` is what its operations are ordered behind: all that the thread knew at its
// last tcgen05.fence::after_thread_sync. `done` are loads and stores that it has waited for, which
// others learn of only from what it releases after tcgen05.fence::before_thread_sync.
struct LaneFences {
  Knowledge fenced;
  Knowledge done;
};
LaneFences& lane_fences(const Thread& thread);

// Limits an operation's knowledge to what fences ordered before it. Only when checking.
void order_by_fences(AsyncActor& actor);

// Every lane of the running warp passes the same value; a finding that ends the launch if not.
// `body` runs once, when all have arrived. Returns what it returns, in every lane.
uint64_t uniform_collective(const char* what, uint64_t value, Pc pc,
                            const std::function<uint64_t()>& body);

}  // namespace kb::emu
