// mbarrier, PTX ISA 9.1, 9.7.13.15: the state that the hardware keeps in the object's eight bytes
// is kept beside shared memory, with what the checker wants to know.
#include <algorithm>
#include <utility>

#include "api_core.hpp"
#include "api_ptx.hpp"
#include "runner.hpp"
#include "timing.hpp"

namespace kb::emu {

namespace {

// PTX's ranges: arrivals of a phase 1 … 2^20 - 1, its pending bytes -(2^20 - 1) … 2^20 - 1.
constexpr uint32_t kMaxCount = (1u << 20) - 1;

// "1 byte", "2 bytes".
std::string count_of(uint64_t number, const char* noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

// Whether a thread knows of an event; without the checker nobody has to.
// An event is an epoch of one component (knowledge.hpp): covered by the thread's clock, it happened
// before now; in translated PTX also by that of waits without a scope.
bool observed(const Thread& thread, const Event& event) {
  if (event.epoch == 0 || !checking()) return true;
  const Clock& unfenced = thread.knows.unfenced;
  return thread.knows.seen.covers(event.component, event.epoch) ||
         (!unfenced.at.empty() && unfenced.covers(event.component, event.epoch));
}

// Whether some thread of the CTA, or of the cluster, knows of an event.
bool known_in(const Cta& cta, const Event& event) {
  return std::any_of(cta.threads.begin(), cta.threads.end(),
                     [&event](const Thread& thread) { return observed(thread, event); });
}
bool known_in(const Cluster& cluster, const Event& event) {
  return std::any_of(cluster.ctas.begin(), cluster.ctas.end(),
                     [&event](const Cta& cta) { return known_in(cta, event); });
}

// The barrier of an operation, by pointer in the CTA's own memory or by shared::cluster address.
// PTX lets generic addresses fall into .shared::cta for most forms, .shared::cluster for arrive and
// expect_tx; the place says whose memory it is.
Barrier& barrier_at(const void* bar, Pc pc, const char* what) {
  const SharedPlace at = shared_place(bar, pc, what);
  return at.cta->barrier(at.offset, pc);
}

// Of another CTA: the initialization has to have been fenced towards the cluster.
Barrier& barrier_at(uint32_t address, Pc pc, const char* what) {
  const SharedPlace at = shared_place(address, pc, what);
  return at.cta->barrier(at.offset, pc, at.cta != self().cta);
}

// Whether a shared::cluster address is another CTA's.
bool afar(uint32_t address) {
  return address >> 24 != self().cta->rank;
}

// Whether a thread of another warp knows of the last arrival of a lane of the completer's warp: one
// instruction arrives at a barrier of each CTA, each by its lane.
bool observed_by_lanes(const Thread& thread, const Barrier& barrier) {
  const uint32_t component = barrier.completer.component;
  if (lanes_of_one_warp(*thread.cta, thread.component, component)) return false;
  const auto threads = static_cast<uint32_t>(thread.cta->threads.size());
  const uint32_t first = component - component % threads % kWarpSize;
  for (uint32_t lane = 0; lane < barrier.completer_lanes.size(); ++lane) {
    if (observed(thread, {first + lane, barrier.completer_lanes[lane]})) return true;
  }
  return false;
}

uint64_t& arrival_of(Barrier& barrier, uint32_t component) {
  if (barrier.arrived_for.size() <= component) barrier.arrived_for.resize(component + 1);
  return barrier.arrived_for[component];
}

// PTX: 9.7.13.15: a phase expects as many arrivals as the count says. One by a thread that does not
// know of the arrival which completed the phase before might have come in that phase: the count is
// too small for both. It is the cause of what is found later.
void note_second_arrival(Barrier& barrier, Pc pc) {
  if (!runs_ptx() || !checking() || barrier.completer.epoch == 0) return;
  const Thread& thread = self();
  if (barrier.completer.component == thread.component || observed(thread, barrier.completer) ||
      observed_by_lanes(thread, barrier)) {
    return;
  }
  note_cause({.kind = Class::kArrivalCount,
              .pc = pc,
              .other_pc = barrier.completer_pc,
              .shared_offset = barrier.offset,
              .follows = arrival_of(barrier, thread.component) == barrier.phase,
              .text = "the count is " + std::to_string(barrier.expected) + ", but " +
                      std::to_string(barrier.expected + 1) +
                      " arrive in a phase: nothing orders this arrival after the one that "
                      "completes it"});
}

// An arrival of the running thread.
// PTX: .release makes the thread's accesses so far visible to who acquires the completed phase,
// .relaxed orders nothing.
void arrive(Barrier& barrier, uint32_t count, bool release, Pc pc, bool afar = false) {
  Thread& thread = self();
  note_second_arrival(barrier, pc);
  bool again = false;
  if (runs_ptx() && checking()) {
    const uint64_t before = std::exchange(arrival_of(barrier, thread.component), barrier.phase + 1);
    again = before == barrier.phase + 1;
  }
  if (checking()) thread.arrived = thread.knows.seen.at[thread.component];
  const uint64_t phase = barrier.phase;
  barrier_arrive(barrier, count, release ? &thread.knows : nullptr, pc, afar, again);
  if (!release || !checking()) return;
  if (barrier.phase != phase) {
    barrier.completer = {thread.component, thread.knows.seen.at[thread.component]};
    barrier.completer_pc = pc;
    barrier.completer_lanes.clear();
    for (uint32_t lane = 0; runs_ptx() && lane < thread.warp->count; ++lane) {
      const Thread& each = thread.warp->threads[lane];
      barrier.completer_lanes.push_back(each.arrived != 0 ? each.arrived
                                                          : each.knows.seen.at[each.component]);
    }
  }
  ++thread.knows.seen.at[thread.component];
}

// PTX: 9.7.13.15, phase completion. Both counts have to be zero; the reload is part of the
// completion, so no thread ever sees the barrier between two phases.
// A phase completes when no arrival and no bytes are pending; the next begins at once, with the
// count that it was initialized with. What its arrivals released is from now on what a wait
// acquires.
// Stricter: PTX counts what expect_tx announced and nothing else, so a phase may complete with a
// copy still on its way. No kernel means that: it is reported, and the phase completes all the
// same.
void complete_if_due(Barrier& barrier, Pc pc) {
  if (barrier.pending != 0 || barrier.tx != 0) return;
  if (barrier.bytes_in_flight != 0) {
    report({.kind = Class::kTransactionCount,
            .pc = pc,
            .other_pc = barrier.init_pc,
            .shared_offset = barrier.offset,
            .follows = barrier.phase > 0,
            .text = "a phase completes while " + count_of(barrier.bytes_in_flight, "byte") +
                    " of its copies are still in flight: expect_tx was too small"});
  }
  ++barrier.phase;
  barrier.cta->wake(Wait::Kind::kMbarrier);
  barrier.pending = barrier.expected;
  if (checking()) {
    barrier.completed_before = barrier.completed.seen;
    barrier.completed.join(barrier.arriving);
    barrier.arriving.clear();
    if (barrier.arriving_afar.seen.at.empty()) return;
    barrier.completed_before.join(barrier.completed_afar.seen);
    barrier.completed_afar.join(barrier.arriving_afar);
    barrier.arriving_afar = {};
  }
}

}  // namespace

// PTX: the arrive-on operation with a count: pending arrivals minus count, then the phase completes
// if both counts are zero.
// More arrivals than expected are undefined in PTX: the pending count would wrap.
// `from` of an asynchronous operation is what that operation has done: who acquires the phase knows
// of it.
void barrier_arrive(Barrier& barrier, uint32_t count, const Knowledge* from, Pc pc, bool afar,
                    bool again) {
  if (count > barrier.pending) {
    fail({.kind = Class::kArrivalCount,
          .pc = pc,
          .other_pc = barrier.init_pc,
          .shared_offset = barrier.offset,
          .text = "more arrivals than the phase expects: " + count_of(count, "arrival") + ", " +
                  std::to_string(barrier.pending) + " of " + std::to_string(barrier.expected) +
                  " pending" + (again ? "; the thread has arrived in this phase before" : "")});
  }
  timed(Op::kArrive, pc, barrier.serial, barrier.phase, static_cast<uint32_t>(arrives), 0, true);
  current_runner->changed();
  barrier.arrive_pc = pc;
  barrier.pending -= count;
  if (from != nullptr && checking()) {
    (afar ? barrier.arriving_afar : barrier.arriving).join(*from);
  }
  complete_if_due(barrier, pc);
}

// PTX: the expect-tx operation: adds to the bytes pending of the current phase. Never completes a
// phase.
// The count is signed: bytes may complete before they are expected.
// Assumption: bytes completed before they are expected leave a negative count for the moment, as
// long as an arrival is pending. PTX gives the range that allows it, and no order between a copy
// and the expect_tx of another thread.
void barrier_expect_tx(Barrier& barrier, uint32_t bytes, Pc pc) {
  current_runner->changed();
  barrier.tx += bytes;
  if (barrier.tx > int64_t{kMaxCount}) {
    fail({.kind = Class::kTransactionCount,
          .pc = pc,
          .other_pc = barrier.init_pc,
          .shared_offset = barrier.offset,
          .text = "the transaction count exceeds 2^20 - 1 bytes"});
  }
}

// PTX: the complete-tx operation, by a copy or by mbarrier.complete_tx.
// complete_tx: what a copy does for its bytes when it has written them.
// The copies' form has the release semantics of the copy at scope .cluster: its writes are visible
// to who acquires the phase; the instruction itself orders nothing (`from` is null).
void barrier_complete_tx(Barrier& barrier, uint32_t bytes, const Knowledge* from, Pc pc,
                         bool afar) {
  timed(Op::kArrive, pc, barrier.serial, barrier.phase, static_cast<uint32_t>(arrives), 0, true);
  current_runner->changed();
  barrier.copies_afar |= afar;
  barrier.tx -= bytes;
  if (from != nullptr && checking()) barrier.arriving.join(*from);
  if (barrier.tx < -int64_t{kMaxCount}) {
    report({.kind = Class::kTransactionCount,
            .pc = pc,
            .other_pc = barrier.init_pc,
            .shared_offset = barrier.offset,
            .text = "more bytes complete than any expect_tx announced"});
  }
  complete_if_due(barrier, pc);
}

// PTX: mbarrier.init.shared::cta.b64 (9.7.13.15).
// A live mbarrier has to be invalidated first. It begins in phase 0, with the phase before it
// complete: hence a first wait for parity 1 returns at once.
// Stricter: PTX says that initializing a valid object again is undefined; kernels that reuse memory
// without inval are reported and go on with a fresh barrier.
void mbarrier_init(void* bar, uint32_t count) {
  const Pc pc = KB_EMU_PC;
  interleave();
  const SharedPlace at = shared_place(bar, pc, "mbarrier.init");
  Cta& cta = *at.cta;
  if (at.offset % 8 != 0 || at.offset + 8 > cta.shared_bytes || count == 0 || count > kMaxCount) {
    fail({.kind = Class::kBarrierState,
          .pc = pc,
          .shared_offset = at.offset,
          .text = "mbarrier.init needs 8 aligned bytes and a count of 1 … 2^20 - 1; the count is " +
                  std::to_string(count)});
  }
  uint16_t& index = cta.barrier_index[at.offset / 8];
  if (index == 0) {
    cta.barriers.emplace_back();
    index = static_cast<uint16_t>(cta.barriers.size());
  }
  Barrier& barrier = cta.barriers[index - 1];
  if (barrier.live) {
    report({.kind = Class::kBarrierState,
            .pc = pc,
            .other_pc = barrier.init_pc,
            .shared_offset = at.offset,
            .text = "mbarrier.init of a live mbarrier: mbarrier.inval has to come first"});
  }
  const Thread& thread = self();
  Barrier fresh;
  fresh.cta = &cta;
  fresh.offset = at.offset;
  if (timing) fresh.serial = timed_serial();
  fresh.live = true;
  fresh.expected = count;
  fresh.pending = count;
  fresh.owner = thread.component;
  fresh.owner_epoch = checking() ? thread.knows.seen.at[thread.component] : 0;
  fresh.init_pc = pc;
  barrier = std::move(fresh);
  cta.wake(Wait::Kind::kMbarrier);
  current_runner->changed();
}

// PTX: mbarrier.inval.shared::cta.b64 (9.7.13.15). The bytes may be used for anything afterwards.
// Nothing may be on its way to it: neither bytes nor the arrival of a commit, which only who has
// waited for it knows to have come. Formal where that has been due, as at the CTA's exit.
void mbarrier_inval(void* bar) {
  const Pc pc = KB_EMU_PC;
  interleave();
  Barrier& barrier = barrier_at(bar, pc, "mbarrier.inval");
  if (barrier.bytes_in_flight != 0 || barrier.tx != 0) {
    report({.kind = Class::kBarrierState,
            .pc = pc,
            .other_pc = barrier.init_pc,
            .shared_offset = barrier.offset,
            .text = "mbarrier.inval while copies towards it are in flight"});
  }
  if (!observed(self(), barrier.commit)) {
    report({.kind = Class::kBarrierState,
            .pc = pc,
            .other_pc = barrier.commit_pc,
            .shared_offset = barrier.offset,
            .formal =
                runs_ptx() && barrier.committed.epoch != 0 && observed(self(), barrier.committed),
            .text = "mbarrier.inval although a tcgen05.commit's arrival was not waited for"});
  }
  barrier.live = false;
}

// PTX: 9.7.16, tcgen05.commit: the arrival is an asynchronous write to shared memory; nothing keeps
// a CTA's memory alive for it.
// A commit's arrival writes to the barrier. If no thread of the cluster knows of it, it may come
// when the CTA's memory is another's.
// Stricter: that somebody of the cluster knows of the arrival is enough, but nobody at all is a
// finding even if the memory is never used again. It is formal in translated PTX if its products
// are known to be complete by a later commit, in the CTA itself if another one issues them: the
// arrival has been due since.
void check_barriers_at_exit(Cta& cta) {
  if (!checking()) return;
  for (const Barrier& barrier : cta.barriers) {
    if (!barrier.live) continue;
    if (known_in(*cta.cluster, barrier.commit)) continue;
    const Event& products = barrier.committed;
    const bool due =
        runs_ptx() && products.epoch != 0 &&
        (barrier.committed_afar ? known_in(cta, products) : known_in(*cta.cluster, products));
    report({.kind = Class::kExit,
            .pc = barrier.commit_pc,
            .other_pc = barrier.init_pc,
            .shared_offset = barrier.offset,
            .formal = due,
            .text = std::string(
                        "a CTA exits although nobody has waited for a tcgen05.commit's arrival") +
                    (due ? ", which is due: its products are known to be complete" : "")});
  }
}

// Programming guide, "Distributed Shared Memory": all accesses have to be complete before the
// thread block exits. An arrival on the cluster barrier behind an access says so, even a relaxed
// one, and an acquire at scope .cta.
void check_accesses_afar(const Cta& cta) {
  if (!checking()) return;
  const Cluster& cluster = *cta.cluster;
  for (const Cta& other : cluster.ctas) {
    for (const Thread& thread : other.threads) {
      for (const AccessAfar& last : thread.afar) {
        if (last.rank != cta.rank || thread.cluster_arrivals > last.arrivals) continue;
        const Event access{thread.component, last.epoch};
        const auto passed_by = [&access](const Thread& mine) {
          return !mine.passed_by.at.empty() &&
                 mine.passed_by.covers(access.component, access.epoch);
        };
        if (known_in(cta, access) ||
            std::any_of(cta.threads.begin(), cta.threads.end(), passed_by)) {
          continue;
        }
        report({.kind = Class::kExit,
                .pc = last.pc,
                .where = Where{other.index, other.rank, static_cast<int32_t>(thread.index),
                               other.shared_type},
                .text = std::string(last.what) + (last.writing ? " writes" : " reads") +
                        " shared memory of a CTA that may have exited: nothing orders the access "
                        "before that CTA's end"});
        return;
      }
    }
  }
}

// PTX: mbarrier.arrive.{release,relaxed}.{cta,cluster}.shared::cta.b64 (9.7.13.15).
// mbarrier.arrive; `release` is its .release, else .relaxed.
void mbarrier_arrive(void* bar, uint32_t count, bool release) {
  const Pc pc = KB_EMU_PC;
  interleave();
  arrive(barrier_at(bar, pc, "mbarrier.arrive"), count, release, pc);
}

// PTX: the same on .shared::cluster, which returns no state. The address names a CTA of the cluster
// that still runs.
void mbarrier_arrive_remote(uint32_t bar, uint32_t count, bool release) {
  const Pc pc = KB_EMU_PC;
  interleave();
  arrive(barrier_at(bar, pc, "mbarrier.arrive"), count, release, pc, afar(bar));
}

// PTX: mbarrier.arrive_drop (9.7.13.15): decrements the expected count of all later phases, then
// arrives.
// An arrival for this phase, and one fewer to expect from the next on.
// Stricter: dropping the last arrival leaves an object whose phases complete by bytes alone; PTX's
// range for the count begins at 1.
void mbarrier_arrive_drop(void* bar, bool release) {
  const Pc pc = KB_EMU_PC;
  interleave();
  Barrier& barrier = barrier_at(bar, pc, "mbarrier.arrive_drop");
  if (barrier.expected <= 1) {
    fail({.kind = Class::kArrivalCount,
          .pc = pc,
          .other_pc = barrier.init_pc,
          .shared_offset = barrier.offset,
          .text = "mbarrier.arrive_drop would leave no arrival to expect"});
  }
  --barrier.expected;
  arrive(barrier, 1, release, pc);
}

// PTX: mbarrier.arrive.expect_tx (9.7.13.15): an expect-tx operation, then an arrive-on with count
// 1, as one instruction.
// expect_tx comes first, so that the arrival cannot complete the phase without the bytes.
void mbarrier_arrive_expect_tx(void* bar, uint32_t bytes, bool release) {
  const Pc pc = KB_EMU_PC;
  interleave();
  Barrier& barrier = barrier_at(bar, pc, "mbarrier.arrive.expect_tx");
  barrier_expect_tx(barrier, bytes, pc);
  arrive(barrier, 1, release, pc);
}

// PTX: the same on .shared::cluster: a leader arms the barrier of another CTA.
void mbarrier_arrive_expect_tx_remote(uint32_t bar, uint32_t bytes, bool release) {
  const Pc pc = KB_EMU_PC;
  interleave();
  Barrier& barrier = barrier_at(bar, pc, "mbarrier.arrive.expect_tx");
  barrier_expect_tx(barrier, bytes, pc);
  arrive(barrier, 1, release, pc, afar(bar));
}

// PTX: mbarrier.expect_tx.relaxed (9.7.13.15). Orders nothing.
// Assumption: an arrival of the phase is still pending, else the bytes would count for the next
// one; the phase in which it comes is the one it finds.
void mbarrier_expect_tx(void* bar, uint32_t bytes) {
  const Pc pc = KB_EMU_PC;
  interleave();
  barrier_expect_tx(barrier_at(bar, pc, "mbarrier.expect_tx"), bytes, pc);
}

// PTX: the same on .shared::cluster.
void mbarrier_expect_tx_remote(uint32_t bar, uint32_t bytes) {
  const Pc pc = KB_EMU_PC;
  interleave();
  barrier_expect_tx(barrier_at(bar, pc, "mbarrier.expect_tx"), bytes, pc);
}

// PTX: mbarrier.complete_tx.relaxed (9.7.13.15): simulates a copy's completion without a copy.
// Orders nothing, so nothing is released with it.
void mbarrier_complete_tx(void* bar, uint32_t bytes) {
  const Pc pc = KB_EMU_PC;
  interleave();
  barrier_complete_tx(barrier_at(bar, pc, "mbarrier.complete_tx"), bytes, nullptr, pc);
}

// PTX: the same on .shared::cluster.
void mbarrier_complete_tx_remote(uint32_t bar, uint32_t bytes) {
  const Pc pc = KB_EMU_PC;
  interleave();
  barrier_complete_tx(barrier_at(bar, pc, "mbarrier.complete_tx"), bytes, nullptr, pc);
}

}  // namespace kb::emu
