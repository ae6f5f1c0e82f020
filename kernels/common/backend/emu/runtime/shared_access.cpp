// Accesses to shared memory by threads and asynchronous operations: bounds, live barriers, the
// shadow, and what the async proxy sees of it (PTX ISA 9.1, 8.6; fence.proxy.async, 9.7.13).
#include <algorithm>
#include <cstring>

#include "core.hpp"
#include "runner.hpp"

namespace kb::emu {

namespace {

// Shared memory ends where the launch says, not where the hardware would fault.
// PTX: 5.1: an access beyond the CTA's window is undefined; hardware faults at its own granularity,
// beyond the launch's size.
void check_bounds(Cta& cta, uint32_t offset, uint32_t bytes, const Actor& actor, bool writing) {
  if (offset + uint64_t{bytes} <= cta.shared_bytes) return;
  fail({.kind = Class::kOutOfBounds,
        .pc = actor.pc,
        .shared_offset = offset,
        .text = std::string(actor.what) + (writing ? " writes " : " reads ") +
                std::to_string(bytes) + " bytes at offset " + std::to_string(offset) +
                " of shared memory, which has " + std::to_string(cta.shared_bytes)});
}

// Looks at the barriers or at the bytes, whichever are fewer: copies are large, stores small.
const Barrier* live_barrier_in(const Cta& cta, uint32_t offset, uint32_t bytes) {
  if (cta.barriers.size() < bytes / 8) {
    for (const Barrier& barrier : cta.barriers) {
      if (barrier.live && barrier.offset < offset + bytes && offset < barrier.offset + 8) {
        return &barrier;
      }
    }
    return nullptr;
  }
  for (uint32_t at = offset / 8; at <= (offset + bytes - 1) / 8; ++at) {
    const uint16_t index = cta.barrier_index[at];
    if (index != 0 && cta.barriers[index - 1].live) return &cta.barriers[index - 1];
  }
  return nullptr;
}

// Whether an access touches part of one cell, and `actor` with the bytes that it does.
bool narrow(uint32_t offset, uint32_t bytes) {
  return offset % 4 + bytes < 4 || (offset % 4 != 0 && offset % 4 + bytes == 4);
}
Actor narrowed(const Actor& actor, uint32_t offset, uint32_t bytes) {
  Actor result = actor;
  result.bytes = static_cast<uint8_t>(((1u << bytes) - 1) << offset % 4);
  return result;
}

// Of the CTA, by anything that its threads have released, or by the cluster's barrier, relaxed or
// not.
bool knows_started(const Thread& thread, const Cta& cta) {
  const auto released = [&thread](const Thread& other) {
    const auto knows = [&other](const Clock& clock) {
      return !clock.at.empty() && clock.covers(other.component, 1);
    };
    return knows(thread.knows.seen) || knows(thread.passed_by);
  };
  const auto waited = [](const Thread& each) { return each.cluster_waits != 0; };
  const std::vector<Thread>& own = thread.cta->threads;
  return std::any_of(own.begin(), own.end(), waited) ||
         std::any_of(cta.threads.begin(), cta.threads.end(), released);
}

// Programming guide, "Distributed Shared Memory": accesses require that all thread blocks have
// started executing.
void note_afar(const Cta& cta, const Actor& actor, bool writing) {
  Thread& thread = self();
  const auto same = [&cta](const AccessAfar& each) { return each.rank == cta.rank; };
  auto at = std::find_if(thread.afar.begin(), thread.afar.end(), same);
  if (at == thread.afar.end()) {
    at = thread.afar.emplace(at);
    if (!knows_started(thread, cta)) {
      report({.kind = Class::kRace,
              .pc = actor.pc,
              .abroad = true,
              .text = std::string(actor.what) + (writing ? " writes" : " reads") +
                      " shared memory of a CTA that may not have started: nothing orders the "
                      "access behind that CTA's start"});
    }
  }
  *at = {cta.rank, actor.epoch, thread.cluster_arrivals, writing, actor.pc, actor.what};
}

// An access of the running thread itself, to another CTA.
bool is_afar(const Cta& cta, const Actor& actor) {
  return !actor.async && !actor.tensor && current_thread != nullptr && self().cta != &cta;
}

}  // namespace

// Checks the read and, for the async proxy, finds the cells whose last generic write was not
// published.
// PTX: 8.6: what the async proxy reads without a fence is the old value or the new one; here always
// the old one, so that a result is wrong whenever the fence is missing.
StaleCells shared_read(Cta& cta, uint32_t offset, uint32_t bytes, const Actor& actor) {
  check_bounds(cta, offset, bytes, actor, false);
  StaleCells stale;
  if (!checking() || bytes == 0) return stale;
  if (is_afar(cta, actor)) note_afar(cta, actor, false);
  const uint32_t first = offset / 4;
  const uint32_t count = (offset + bytes - 1) / 4 - first + 1;
  if (actor.async) {
    for (uint32_t cell = first; cell < first + count; ++cell) {
      if (!cta.async_differs[cell]) continue;
      if (cta.shared_shadow->published(cell, actor)) {
        cta.async_differs[cell] = 0;
      } else {
        stale.push_back(cell);
      }
    }
  }
  if (narrow(offset, bytes)) {
    cta.shared_shadow->read(first, count, narrowed(actor, offset, bytes));
  } else {
    cta.shared_shadow->read(first, count, actor);
  }
  return stale;
}

// Checks the write. A generic one leaves the old bytes in the async view until it is published.
// PTX: 9.7.13.15: ordinary accesses to an mbarrier object are undefined while it is valid.
void shared_write(Cta& cta, uint32_t offset, uint32_t bytes, const Actor& actor) {
  check_bounds(cta, offset, bytes, actor, true);
  if (bytes == 0) return;
  // A barrier's bytes are not data.
  if (const Barrier* barrier = live_barrier_in(cta, offset, bytes)) {
    report({.kind = Class::kBarrierState,
            .pc = actor.pc,
            .other_pc = barrier->init_pc,
            .shared_offset = barrier->offset,
            .text = std::string(actor.what) + " overwrites a live mbarrier"});
  }
  if (!checking()) return;
  if (is_afar(cta, actor)) note_afar(cta, actor, true);
  const uint32_t first = offset / 4;
  const uint32_t count = (offset + bytes - 1) / 4 - first + 1;
  if (narrow(offset, bytes)) {
    cta.shared_shadow->write(first, count, narrowed(actor, offset, bytes));
  } else {
    cta.shared_shadow->write(first, count, actor);
  }
  if (actor.async) {
    std::fill_n(cta.async_differs.begin() + first, count, uint8_t{0});
    return;
  }
  // The async proxy keeps what was there, until a fence publishes this write.
  for (uint32_t cell = first; cell < first + count; ++cell) {
    if (cta.async_differs[cell]) continue;
    cta.async_differs[cell] = 1;
    std::memcpy(&cta.async_view[cell * 4], cta.shared + cell * 4, 4);
  }
}

// Stale cells give the bytes that the proxy saw last.
void shared_async_bytes(const Cta& cta, uint32_t offset, uint32_t bytes, const StaleCells& stale,
                        void* out) {
  std::memcpy(out, cta.shared + offset, bytes);
  for (uint32_t cell : stale) {
    for (uint32_t byte = cell * 4; byte < cell * 4 + 4; ++byte) {
      if (byte < offset || byte >= offset + bytes) continue;
      static_cast<std::byte*>(out)[byte - offset] = cta.async_view[byte];
    }
  }
}

}  // namespace kb::emu
