// Named barriers and the fence between proxies: PTX ISA 9.1, 9.7.13 (bar, fence.proxy.async).
#include <utility>

#include "api_core.hpp"
#include "api_ptx.hpp"
#include "core.hpp"
#include "timing.hpp"

namespace kb::emu {

namespace {

// CUDA promises what the threads that come to __syncthreads() have done before; what those have
// done that have exited is done on every GPU, too: formal.
void release_of_exited(const Cta& cta, Knowledge& to) {
  for (const Thread& thread : cta.threads) {
    if (!thread.exited) continue;
    to.unfenced.join(thread.knows.seen);
  }
}

void complete(NamedBarrier& barrier, Cta& cta) {
  barrier.arrived = 0;
  ++barrier.generation;
  cta.wake(Wait::Kind::kNamedBarrier);
  barrier.before = barrier.expected;
  barrier.held = std::exchange(barrier.holding, 0);
  if (!checking()) return;
  if (barrier.all && cta.live_threads != cta.threads.size())
    release_of_exited(cta, barrier.arriving);
  std::swap(barrier.completed, barrier.arriving);
  barrier.arriving.clear();
}

// PTX: barrier.cta / bar (9.7.13): sixteen a CTA; the count is a multiple of the warp size.
// bar.sync and bar.arrive. The first to come says how many are expected; the generation counts
// completions, so that a barrier that is used again at once loses nobody.
// PTX: the .aligned form is for whole warps. Here every thread arrives by itself, so that a
// bar.sync in divergent code leaves the others waiting.
// Assumption: release and acquire at scope .cta among all that took part, those that only arrived
// included as releasers.
// `holds`: what bar.red counts. Returns how many arrivals of the generation brought it.
// `all`: no count was given, and those that have exited are not waited for.
uint32_t named_barrier(uint32_t number, uint32_t threads, bool waits, Pc pc, bool holds = false,
                       bool all = false) {
  interleave();
  Thread& thread = self();
  if (number > 15 || threads == 0 || threads > thread.cta->threads.size() ||
      (threads % kWarpSize != 0 && threads != thread.cta->threads.size())) {
    fail({.kind = Class::kNamedBarrier,
          .pc = pc,
          .text = "barrier " + std::to_string(number) + " for " + std::to_string(threads) +
                  " threads: barriers are 0 … 15, counts multiples of 32 up to the CTA's threads"});
  }
  NamedBarrier& barrier = thread.cta->named[number];
  if (all) threads = thread.cta->live_threads;
  if (barrier.arrived == 0) {
    barrier.all = all;
    barrier.expected = threads;
    barrier.pc = pc;
  } else if (barrier.expected != threads) {
    fail({.kind = Class::kNamedBarrier,
          .pc = pc,
          .other_pc = barrier.pc,
          .text = "participants of barrier " + std::to_string(number) +
                  " disagree: " + std::to_string(threads) + " threads here, " +
                  std::to_string(barrier.expected) + " there"});
  }
  // An arrival releases, whether it waits or not; whoever waits acquires what all have released.
  release_to(barrier.arriving);
  const uint64_t generation = barrier.generation;
  timed(Op::kBarrier, pc, number, generation, 0, waits);
  barrier.holding += holds;
  if (++barrier.arrived == barrier.expected) {
    complete(barrier, *thread.cta);
  } else if (waits) {
    wait_until_woken(Wait::Kind::kNamedBarrier, pc, number, generation,
                     [&barrier, generation] { return barrier.generation != generation; });
  }
  // A later generation cannot have completed without this thread, unless it only arrived.
  if (waits) acquire_from(barrier.completed);
  return barrier.held;
}

uint32_t all_threads() {
  return static_cast<uint32_t>(self().cta->threads.size());
}

}  // namespace

// Runtime: CUDA C++ Programming Guide, "Synchronization Functions" and "Compute Capability 7.x": a
// barrier of all the CTA's threads is one of those that have not exited.
// Stricter: in steps of the ptx layer they are waited for.
void excuse_from_barriers(const Thread& thread) {
  for (NamedBarrier& each : thread.cta->named) {
    if (each.arrived == 0 || !each.all) continue;
    if (--each.expected == each.arrived) complete(each, *thread.cta);
  }
}

// PTX: bar.sync a (9.7.13), all threads of the CTA.
void bar_sync_all(uint32_t barrier) {
  const Pc pc = KB_EMU_PC;
  named_barrier(barrier, all_threads(), true, pc, false, runs_ptx());
}

// PTX: bar.sync a, b (9.7.13): arrives and waits.
void bar_sync(uint32_t barrier, uint32_t threads) {
  const Pc pc = KB_EMU_PC;
  named_barrier(barrier, threads, true, pc);
}

// PTX: bar.red.{popc,and,or} a{, b}, p (9.7.13): arrives and waits; the predicates of all are
// counted.
uint32_t bar_red(uint32_t barrier, uint32_t threads, bool value) {
  const Pc pc = KB_EMU_PC;
  return named_barrier(barrier, threads, true, pc, value);
}

// PTX: bar.red.{popc,and,or} a, p (9.7.13), all threads of the CTA.
uint32_t bar_red_all(uint32_t barrier, bool value) {
  const Pc pc = KB_EMU_PC;
  return named_barrier(barrier, all_threads(), true, pc, value, runs_ptx());
}

// PTX: bar.arrive a, b (9.7.13): arrives without waiting; the thread acquires nothing.
void bar_arrive(uint32_t barrier, uint32_t threads) {
  const Pc pc = KB_EMU_PC;
  named_barrier(barrier, threads, false, pc);
}

// PTX: fence.proxy.async{.shared::cta,.global} (9.7.13): between the generic and the async proxy,
// in both directions, for the executing thread. What the thread knows of generic writes, its own
// and others', is from now on published to the async proxy. Assumption: it publishes other threads'
// writes that the fencing thread has observed, so that one thread can fence for a CTA after a
// barrier. That is how everybody uses it; PTX's text has it through causality order. Not modelled:
// .global: copies read global memory as it is.
void fence_proxy_async(bool shared, bool) {
  interleave();
  if (!checking() || !shared) return;
  Knowledge& knows = self().knows;
  // Both directions: async writes that a barrier has made known are seen by ordinary loads without
  // this fence.
  knows.published.join(knows.seen);
  // Its later writes are not published.
  ++knows.seen.at[self().component];
}

}  // namespace kb::emu
