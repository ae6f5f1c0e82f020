// State of barriers: mbarrier objects (PTX ISA 9.1, 9.7.13.15), the sixteen named barriers of a CTA
// and barrier.cluster (9.7.13). barriers.cpp and warp.cpp work on it.
#pragma once

#include <cstdint>
#include <vector>

#include "knowledge.hpp"
#include "tma_state.hpp"

namespace kb::emu {

// An mbarrier. The 8 bytes in shared memory hold nothing; this is the state.
struct Barrier {
  uint32_t offset = 0;
  bool live = false;
  uint32_t expected = 0;
  uint32_t pending = 0;
  int64_t tx = 0;
  uint64_t phase = 0;            // phases completed since its initialization
  uint64_t bytes_in_flight = 0;  // of copies issued towards it and not completed
  uint32_t owner = 0;            // component and epoch of the initialization
  uint32_t owner_epoch = 0;
  bool fenced = false;  // fence.mbarrier_init by its thread since
  Pc init_pc = nullptr;
  // The last arrival of a tcgen05.commit. Arrivals of two commits are in no order: knowing of the
  // later one, on another barrier, says nothing of this one.
  Event commit;
  Pc commit_pc = nullptr;
  Knowledge arriving;
  Knowledge completed;
  std::vector<int64_t> observed;  // per thread of the CTA: last phase waited for, -1 none
};

struct NamedBarrier {
  uint32_t expected = 0;
  uint32_t arrived = 0;
  uint64_t generation = 0;
  Pc pc = nullptr;
  Knowledge arriving;
  Knowledge completed;
};

// One side of barrier.cluster.
struct ClusterBarrier {
  uint32_t arrived = 0;
  uint64_t generation = 0;
  Knowledge arriving;
  Knowledge completed;
};

// Operations on the object, as the instructions and the hardware's own units make them.
// Arrives on a barrier; `from` is what the arrival releases (null: relaxed).
void barrier_arrive(Barrier& barrier, uint32_t count, const Knowledge* from, Pc pc);
void barrier_expect_tx(Barrier& barrier, uint32_t bytes, Pc pc);
// A copy completes `bytes`; releases `from`.
void barrier_complete_tx(Barrier& barrier, uint32_t bytes, const Knowledge* from, Pc pc);

}  // namespace kb::emu
