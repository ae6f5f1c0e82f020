// Waiting. A kernel has no loop of its own around a poll: these functions are the loops, and the
// executor decides what waiting means (spin, spin with a bound and a report, suspend the thread).
#pragma once

#include "ptx/mbarrier.cuh"

namespace kb {

// Returns when the phase of `bar` with `parity` has completed; see ptx::mbarrier_try_wait_parity
// for which parities are legal, and for what acquire makes visible. Every thread that waits calls
// it; a warp that calls it together stays together.
template <typename Sem, typename Scope>
KB_DEVICE void mbarrier_wait_parity(Sem, Scope, const Mbarrier* bar, uint32_t parity);

// The same with acquire at CTA scope: for barriers that only this CTA, its copies and its commits
// arrive on.
KB_DEVICE void mbarrier_wait_parity(const Mbarrier* bar, uint32_t parity) {
  mbarrier_wait_parity(ptx::sem_acquire, ptx::scope_cta, bar, parity);
}

// Returns when *word, in global memory, is at least `value` as an acquire load at GPU scope sees
// it: for counters that other CTAs raise with a release. They must be resident: launch
// cooperatively, or wait only for CTAs with a lower index.
KB_DEVICE void global_wait_at_least(const uint32_t* word, uint32_t value);

// Waits until a bit of `mask` of *word, in global memory, differs from that of `before` as an
// acquire load at GPU scope sees it: for barriers of a grid that other CTAs complete with a
// release. They must be resident. Returns the word.
KB_DEVICE uint32_t global_wait_changed(const uint32_t* word, uint32_t before, uint32_t mask);

}  // namespace kb

#include "wait.inl"
