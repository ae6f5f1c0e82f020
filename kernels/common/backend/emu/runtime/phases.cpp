// What a thread learns when a wait for a phase of an mbarrier returns: which phase that was, and
// what its arrivals released (PTX ISA 9.1, 9.7.13.15 and chapter 8).
#include <algorithm>

#include "assumptions.hpp"
#include "core.hpp"

namespace kb::emu {

namespace {

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

}  // namespace

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
void acquire_phase(const Barrier& barrier, Scope scope, Pc pc) {
  if (!checking()) return;
  Thread& thread = self();
  thread.knows.join(barrier.completed);
  if (barrier.copies_afar && scope == Scope::kCta) assume(Assumption::kCopiesAtCtaScope);
  const Knowledge& afar = barrier.completed_afar;
  if (afar.seen.at.empty()) return;
  if (scope != Scope::kCta) {
    thread.knows.join(afar);
  } else {
    thread.passed_by.join(afar.seen);
    thread.passed_by_pc = pc;
  }
}

}  // namespace kb::emu
