// Waits for a phase of an mbarrier, and what a thread learns when one returns: which phase that
// was, and what its arrivals released (PTX ISA 9.1, 9.7.13.15 and chapter 8).
#include <algorithm>

#include "api_core.hpp"
#include "api_ptx.hpp"
#include "assumptions.hpp"
#include "core.hpp"
#include "runner.hpp"
#include "timing.hpp"

namespace kb::emu {

namespace {

// PTX: 9.7.13.15, test_wait and try_wait .parity: the phase named is the current one (incomplete:
// false) or the one immediately before (complete: true). An older phase cannot be asked for: its
// parity is that of the current one or of the one before.
// Whether `parity` has completed, as the hardware would say.
bool completed(const Barrier& barrier, uint32_t parity) {
  return (barrier.phase & 1) != (parity & 1);
}

// The phase that a wait for `parity` means in a thread that knows of `count` completed ones: the
// current one, or the one before it, which is complete.
int64_t phase_meant(int64_t count, uint32_t parity) {
  return (count & 1) == (parity & 1) ? count : count - 1;
}

// Whether the thread knows that all phases but the last completed one are complete: then the last
// one is what it means. It knows by acquiring what their arrivals released, on whatever way.
bool knows_all_but_last(const Thread& thread, const Barrier& barrier) {
  const std::vector<uint32_t>& before = barrier.completed_before.at;
  if (before.empty()) return false;
  for (size_t i = 0; i < before.size(); ++i) {
    if (thread.knows.seen.at[i] < before[i]) return false;
  }
  return true;
}

// How many phases a thread has seen complete; before its first wait, what lanes of its warp have: a
// warp's lanes share one count, of which some may execute the last wait only.
int64_t count_seen(const Thread& thread, const Barrier& barrier) {
  const int64_t own = barrier.observed[thread.index];
  if (own >= 0) return own;
  const auto first = barrier.observed.begin() + thread.warp->index * kWarpSize;
  return std::max<int64_t>(0, *std::max_element(first, first + thread.warp->count));
}

// Not modelled: remote waits, which PTX does not have either.
// A parity tells two phases apart only. A wait that returns for a later phase than the one that it
// means is found: the hardware would go on. Which one that is follows from what the thread knows to
// have happened before.
void note_observed(Cta& cta, Barrier& barrier, uint32_t parity, Pc pc) {
  if (!checking()) return;
  Thread& thread = self();
  if (thread.cta != &cta) return;
  if (barrier.observed.empty()) barrier.observed.assign(cta.threads.size(), -1);
  const auto current = static_cast<int64_t>(barrier.phase);
  const int64_t meant = phase_meant(count_seen(thread, barrier), parity);
  if (meant < current - 1 && !knows_all_but_last(thread, barrier)) {
    report({.kind = Class::kPhase,
            .pc = pc,
            .other_pc = barrier.init_pc,
            .shared_offset = barrier.offset,
            .text = "a wait for phase " + std::to_string(meant) + " finds the barrier in phase " +
                    std::to_string(current) + ": the waiter was lapped"});
  }
  barrier.observed[thread.index] = current;
}

// A wait's acquire. At CTA scope it pairs with releases of the CTA alone; what it passes by is kept
// for the finding that may follow.
void acquire_phase(Barrier& barrier, Scope scope, Pc pc) {
  if (!checking()) return;
  Thread& thread = self();
  barrier.taken.resize(thread.cta->cluster->components);
  barrier.completed.hand_to(thread.knows, barrier.taken[thread.component]);
  if (barrier.copies_afar && scope == Scope::kCta) assume(Assumption::kCopiesAtCtaScope);
  const Knowledge& afar = barrier.completed_afar;
  if (afar.seen.at.empty()) return;
  if (scope != Scope::kCta) {
    thread.knows.join(afar);
  } else {
    thread.passed_by.join(afar.seen);
    thread.passed_by_pc = pc;
    if (!runs_ptx()) return;
    // CUTLASS's waits have no scope, and so the CTA's; shared and tensor memory have no caches that
    // it could matter for.
    thread.knows.unfenced.join(afar.seen);
    thread.knows.unfenced.join(afar.unfenced);
    if (!afar.grouped.at.empty()) thread.knows.unfenced.join(afar.grouped);
    thread.knows.published.join(afar.published);
  }
}

}  // namespace

// PTX: 9.7.13.15: what a state token says of a phase, as far as waits need it.
uint32_t mbarrier_parity(const void* bar) {
  const Pc pc = KB_EMU_PC;
  const SharedPlace at = shared_place(bar, pc, "mbarrier.arrive");
  return static_cast<uint32_t>(at.cta->barrier(at.offset, pc).phase & 1);
}

// PTX: mbarrier.test_wait.parity and one mbarrier.try_wait.parity (9.7.13.15): non-blocking here.
// try_wait may suspend for a time that nobody promises and may return false early, so both look the
// same to a kernel.
// A poll. One that fails gives way, since the kernel's own loop would never end otherwise.
// Assumption: a failed poll of a loop lets every other thread run some time. PTX promises no
// forward progress between divergent lanes that hold each other up.
bool mbarrier_test_wait_parity(const void* bar, uint32_t parity, bool acquire, Scope scope) {
  const Pc pc = KB_EMU_PC;
  interleave();
  const SharedPlace at = shared_place(bar, pc, "mbarrier.test_wait");
  Barrier& barrier = at.cta->barrier(at.offset, pc);
  if (!completed(barrier, parity)) {
    poll({.kind = Wait::Kind::kMbarrier,
          .pc = pc,
          .at = &barrier,
          .offset = barrier.offset,
          .parity = parity & 1,
          .seen = barrier.phase});
  }
  if (!completed(barrier, parity)) return false;
  polled(&barrier);
  timed(Op::kWait, pc, barrier.serial, barrier.phase);
  note_observed(*at.cta, barrier, parity, pc);
  if (acquire) acquire_phase(barrier, scope, pc);
  return true;
}

// PTX: mbarrier.try_wait.parity.{acquire,relaxed} in a loop until it is true (9.7.13.15).
// try_wait in a loop, as wait.cuh has it: the thread sleeps until the phase is complete.
// Acquire: what the phase's arrivals and copies released is known from here on. Relaxed: the phase
// is known to be over, and nothing else.
void mbarrier_wait_parity(const void* bar, uint32_t parity, bool acquire, Scope scope) {
  const Pc pc = KB_EMU_PC;
  interleave();
  const SharedPlace at = shared_place(bar, pc, "mbarrier.try_wait");
  Barrier& barrier = at.cta->barrier(at.offset, pc);
  // Woken are the warps of the barrier's CTA.
  wait_until(
      Wait::Kind::kMbarrier, pc, barrier.offset, parity,
      [&barrier, parity] { return completed(barrier, parity); }, nullptr, at.cta == self().cta);
  timed(Op::kWait, pc, barrier.serial, barrier.phase);
  note_observed(*at.cta, barrier, parity, pc);
  if (acquire) acquire_phase(barrier, scope, pc);
}

}  // namespace kb::emu
