// Which mbarrier lies at an address, and whether its initialization has come to who uses it (PTX
// ISA 9.1, 9.7.13.15; proxies: 8.6).
#include "api_core.hpp"
#include "api_ptx.hpp"
#include "core.hpp"

namespace kb::emu {

namespace {

// PTX: 9.7.13: behind fence.mbarrier_init an arrival at barrier.cluster hands initializations on,
// .relaxed or not.
bool visible(const Barrier& barrier, const Thread& thread) {
  if (thread.knows.seen.covers(barrier.owner, barrier.owner_epoch)) return true;
  return barrier.fenced_from != 0 && thread.cluster_waits >= barrier.fenced_from;
}

}  // namespace

// PTX: 9.7.13.15: every operation but init needs an object that mbarrier.init has made and
// mbarrier.inval has not ended; 8 bytes, aligned to 8.
// PTX leaves operations on memory without an initialized mbarrier undefined. A thread has to know
// of the initialization.
// Formal in translated PTX: a thread that knows of it by a wait without a scope (9.7.13.15).
// Stricter: visibility of the initialization is asked of every operation; on hardware a race that
// went well would go unnoticed.
// Stricter: steps of the ptx layer need fence.mbarrier_init by the initializing thread towards
// another CTA; barrier.cluster with release and acquire alone orders the initialization in PTX's
// text, and in translated PTX.
Barrier& Cta::barrier(uint32_t offset, Pc pc, bool remote) {
  const char* problem = nullptr;
  bool formal = false;
  Barrier* found = nullptr;
  if (offset % 8 != 0 || offset + 8 > shared_bytes) {
    fail({.kind = Class::kAlignment,
          .pc = pc,
          .shared_offset = offset,
          .text = "an mbarrier lies on 8 bytes inside shared memory"});
  }
  const uint16_t index = barrier_index[offset / 8];
  if (index != 0) found = &barriers[index - 1];
  if (found == nullptr || !found->live) {
    problem = "the mbarrier is not initialized";
  } else if (checking()) {
    if (!visible(*found, self())) {
      problem = "the mbarrier's initialization is not visible to this thread: no barrier between";
      const Clock& passed_by = self().passed_by;
      formal =
          runs_ptx() && !passed_by.at.empty() && passed_by.covers(found->owner, found->owner_epoch);
    } else if (remote && found->fenced_from == 0 && !runs_ptx()) {
      problem =
          "an mbarrier is reached from another CTA without fence.mbarrier_init after its "
          "initialization";
    }
  }
  if (problem == nullptr) return *found;
  Finding finding{.kind = Class::kBarrierState,
                  .pc = pc,
                  .shared_offset = offset,
                  .formal = formal,
                  .text = problem};
  if (found == nullptr || !found->live) fail(std::move(finding));
  finding.other_pc = found->init_pc;
  report(std::move(finding));
  return *found;
}

// PTX: 8.6: mbarrier.init writes through the generic proxy, and what a bulk copy does at its
// barrier is done by the async proxy, so that a fence belongs between. fence.mbarrier_init is taken
// for one, as CUTLASS does; fence.proxy.async is what CUDA's own headers write. Compilers and
// kernels that are right have neither (Triton, CUTLASS's tutorials): formal in translated PTX.
Barrier& Cta::async_barrier(uint32_t offset, Pc pc, bool remote, const char* what) {
  Barrier& found = barrier(offset, pc, remote);
  if (!checking() || found.fenced_from != 0 ||
      self().knows.published.covers(found.owner, found.owner_epoch)) {
    return found;
  }
  report({.kind = Class::kProxyFence,
          .pc = pc,
          .other_pc = found.init_pc,
          .shared_offset = offset,
          .formal = runs_ptx(),
          .text = std::string(what) +
                  " completes on an mbarrier without fence.mbarrier_init or fence.proxy.async "
                  "after its initialization"});
  return found;
}

// PTX: fence.mbarrier_init.release.cluster (9.7.13): restricted to mbarrier.init of the executing
// thread; takes effect for who synchronizes through barrier.cluster afterwards.
// Makes the thread's own initializations visible to the cluster.
void fence_mbarrier_init() {
  const Thread& thread = self();
  for (Barrier& barrier : thread.cta->barriers) {
    if (!barrier.live || barrier.owner != thread.component || barrier.fenced_from != 0) continue;
    barrier.fenced_from = thread.cluster_arrivals + 1;
  }
}

}  // namespace kb::emu
