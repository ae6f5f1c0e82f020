// State of barriers: mbarrier objects (PTX ISA 9.1, 9.7.13.15), the sixteen named barriers of a CTA
// and barrier.cluster (9.7.13). barriers.cpp and warp.cpp work on it.
#pragma once

#include <cstdint>
#include <vector>

#include "api_core.hpp"
#include "knowledge.hpp"
#include "tma_state.hpp"

namespace kb::emu {

// An mbarrier. The 8 bytes in shared memory hold nothing; this is the state.
struct Barrier {
  Cta* cta = nullptr;
  // From the start of the CTA's shared memory: what a finding names by the field of SharedStorage.
  uint32_t offset = 0;
  uint64_t serial = 0;  // of the initialization, while a launch is timed
  // Between mbarrier.init and mbarrier.inval.
  bool live = false;
  uint32_t expected = 0;
  uint32_t pending = 0;
  // Bytes expected minus bytes completed in this phase; negative while completions run ahead.
  int64_t tx = 0;
  uint64_t phase = 0;            // phases completed since its initialization
  uint64_t bytes_in_flight = 0;  // of copies issued towards it and not completed
  uint32_t owner = 0;            // component and epoch of the initialization
  uint32_t owner_epoch = 0;
  // The generation of barrier.cluster that hands it on since its thread's fence.mbarrier_init; 0:
  // no such fence.
  uint64_t fenced_from = 0;
  Pc init_pc = nullptr;
  Pc arrive_pc = nullptr;  // of the last arrival since its initialization: for hangs
  // The last arrival of a tcgen05.commit. Arrivals of two commits are in no order: knowing of the
  // later one, on another barrier, says nothing of this one.
  Event commit;
  Event committed;              // the last of the products that it tracks
  bool committed_afar = false;  // by another CTA
  Pc commit_pc = nullptr;
  Knowledge arriving;
  Growing completed;
  std::vector<uint32_t> taken;  // of that, by component of the cluster
  // What threads and commits of other CTAs have released: for who acquires at cluster scope.
  Knowledge arriving_afar;
  Knowledge completed_afar;
  bool copies_afar = false;  // of another CTA, completed here
  // The thread whose arrival has completed the last phase, if one has: for who arrives behind it.
  Event completer;
  std::vector<uint32_t> completer_lanes;  // of its warp: epochs of their last arrivals
  Pc completer_pc = nullptr;
  // By component of the cluster, phases completed once that of its last arrival is: of PTX,
  // checked.
  std::vector<uint64_t> arrived_for;
  Clock completed_before;  // of all phases but the last completed one
  // Checked only: for laps.
  std::vector<int64_t> observed;  // per thread of the CTA: phases that its waits saw, -1 none
};

// PTX: 9.7.13, barrier.cta: a number 0 … 15, no object in memory. Expected threads are those of the
// first to arrive in each generation.
struct NamedBarrier {
  uint32_t expected = 0;
  uint32_t before = 0;  // expected of the last completed generation: for hangs
  bool all = false;     // of the CTA's threads are
  uint32_t arrived = 0;
  uint64_t generation = 0;
  Pc pc = nullptr;
  Knowledge arriving;
  Knowledge completed;
  uint32_t holding = 0;  // of bar.red: arrivals whose predicate held
  uint32_t held = 0;     // of the last completed generation
};

// PTX: 9.7.13, barrier.cluster: one for each cluster, used in turn by arrive and wait.
// One side of barrier.cluster.
struct ClusterBarrier {
  uint32_t arrived = 0;
  uint64_t generation = 0;
  Knowledge arriving;
  Knowledge completed;
};

// Operations on the object, as the instructions and the hardware's own units make them.
// Arrives on a barrier; `from` is what the arrival releases (null: relaxed). `afar`: it comes from
// another CTA than the barrier's. `again`: its thread has arrived in this phase before.
void barrier_arrive(Barrier& barrier, uint32_t count, const Knowledge* from, Pc pc,
                    bool afar = false, bool again = false);
void barrier_expect_tx(Barrier& barrier, uint32_t bytes, Pc pc);
// A copy completes `bytes`; releases `from`. `afar`: another CTA has issued it.
void barrier_complete_tx(Barrier& barrier, uint32_t bytes, const Knowledge* from, Pc pc,
                         bool afar = false);

}  // namespace kb::emu
