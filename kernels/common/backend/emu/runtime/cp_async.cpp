// cp.async, PTX ISA 9.1, 9.7.9: copies by each thread through the generic proxy.
#include <algorithm>
#include <cstring>
#include <memory>

#include "api_ptx.hpp"
#include "api_tma.hpp"
#include "core.hpp"
#include "global_shadow.hpp"
#include "timing.hpp"

namespace kb::emu {

namespace {

const char* const kWhat = "cp.async";

// Copies that complete together as far as anyone can observe: one actor, which knows at each copy
// what its thread knew then.
// PTX: 9.7.9, cp.async: no order between two copies of a thread, whatever their groups; completion
// is known through a wait or an arrival only.
struct Part {
  AsyncActor actor;
  uint32_t pending = 0;
  bool gone = false;    // with its CTA
  bool sealed = false;  // an arrival waits for what it holds: later copies belong to the next part
  std::vector<std::function<void()>> after;
};

// The copies between two commits.
// PTX: cp.async.commit_group: per thread; groups complete in the order of their commits.
struct CopyGroup {
  std::vector<std::shared_ptr<Part>> parts;
  Knowledge finished;  // of the parts dropped
  bool complete() const {
    return std::all_of(parts.begin(), parts.end(),
                       [](const auto& part) { return part->pending == 0; });
  }
  void drop_finished() {
    std::erase_if(parts, [this](const auto& part) {
      if (part->pending > 0) return false;
      finished.join(part->actor.knows);
      return true;
    });
  }
};

}  // namespace

struct ThreadCopies {
  CopyGroup open;
  std::vector<CopyGroup> groups;  // oldest first
  Knowledge waited;               // of groups waited for
};

namespace {

// A thread that never copies has none of this state.
ThreadCopies& own_copies() {
  std::shared_ptr<ThreadCopies>& copies = self().tma.copies;
  if (!copies) copies = std::make_shared<ThreadCopies>();
  return *copies;
}

// The part that the next copy belongs to. cp.async writes through the generic proxy, hence not
// `async`; `tensor` because nobody may read before a wait.
// Copies of one part share an actor, and with it an epoch: cheaper than one each, and nobody can
// tell.
std::shared_ptr<Part> open_part(Pc pc) {
  CopyGroup& group = own_copies().open;
  if (!group.parts.empty() && !group.parts.back()->sealed) {
    group.parts.back()->actor.knows.join(self().knows);
  } else {
    group.drop_finished();
    const auto part = std::make_shared<Part>();
    part->actor = copy_actor(pc, kWhat);
    part->actor.actor.async = false;
    part->actor.actor.tensor = true;
    group.parts.push_back(part);
  }
  group.parts.back()->actor.actor.pc = pc;
  return group.parts.back();
}

}  // namespace

// PTX: cp.async.{ca,cg}.shared.global [dst], [src], cp-size, src-size (9.7.9): 4, 8 or 16 bytes,
// both addresses aligned to the size, the rest filled with zeros.
// Bytes beyond `source_bytes` become zero. An early reader finds neither the old nor the new bytes.
// Not modelled: caching in L1 (.ca, .cg), L2 prefetch sizes and cache policies.
// Assumption: source bytes beyond `source_bytes` are not read, and need not be in any buffer.
void async_copy(void* dst, const void* src, uint32_t bytes, uint32_t source_bytes) {
  const Pc pc = KB_EMU_PC;
  timed(Op::kAsyncCopy, pc, reinterpret_cast<uint64_t>(src), source_bytes);
  interleave();
  const SharedPlace to = shared_place(dst, pc, kWhat);
  if (to.cta != self().cta) {
    fail({.kind = Class::kOutOfBounds,
          .pc = pc,
          .text = "cp.async takes an address in the executing CTA's shared memory"});
  }
  if (to.offset % bytes != 0 || reinterpret_cast<uintptr_t>(src) % bytes != 0) {
    fail({.kind = Class::kAlignment,
          .pc = pc,
          .shared_offset = to.offset,
          .text = "cp.async of " + std::to_string(bytes) +
                  " bytes needs both addresses aligned to that"});
  }
  if (source_bytes > bytes) {
    fail({.kind = Class::kDescriptor,
          .pc = pc,
          .text = "cp.async of " + std::to_string(bytes) + " bytes with a source size of " +
                  std::to_string(source_bytes)});
  }
  if (source_bytes > 0) {
    global_access(src, source_bytes, false, pc, kWhat);
    if (checking()) global_load(src, source_bytes, generic_actor(pc, kWhat));
  }
  const auto move = [to, src, bytes, source_bytes] {
    std::byte* destination = to.cta->shared + to.offset;
    if (source_bytes > 0) std::memcpy(destination, src, source_bytes);
    std::memset(destination + source_bytes, 0, bytes - source_bytes);
  };
  if (!checking()) {
    shared_write(*to.cta, to.offset, bytes, generic_actor(pc, kWhat));
    move();
    return;
  }
  const std::shared_ptr<Part> part = open_part(pc);
  // Checked as a write at the issue: who uses the bytes before a wait races with it, whenever it
  // lands.
  shared_write(*to.cta, to.offset, bytes, part->actor.get());
  std::memset(to.cta->shared + to.offset, 0xff, bytes);
  ++part->pending;
  const uint32_t thread = self().index;
  const auto land = [move, part, to, thread] {
    if (part->gone) return;
    move();
    if (--part->pending > 0) return;
    to.cta->warps[thread / kWarpSize].wake(1u << thread % kWarpSize);
    const auto after = std::move(part->after);
    part->after.clear();
    for (const auto& each : after) each();
  };
  submit(pc, land, true);
}

// PTX: cp.async.commit_group (9.7.9). With no copy since the last one it makes an empty group,
// which counts for wait_group.
void async_copy_commit_group() {
  timed(Op::kAsyncCommit, KB_EMU_CALLER);
  interleave();
  if (!checking()) return;
  ThreadCopies& copies = own_copies();
  copies.groups.push_back(std::move(copies.open));
  copies.open = {};
}

// PTX: cp.async.wait_group N, and cp.async.wait_all with N = 0 after a commit (9.7.9).
// Groups complete in order; all but the newest `pending` have to be.
// The waiting thread alone sees the bytes afterwards: others need a barrier between, as after an
// ordinary store.
void async_copy_wait_group(uint32_t pending) {
  const Pc pc = KB_EMU_PC;
  timed(Op::kAsyncWait, pc, pending);
  interleave();
  if (!checking()) return;
  ThreadCopies& copies = own_copies();
  const size_t count = copies.groups.size();
  const auto first = copies.groups.begin();
  const auto end = first + static_cast<ptrdiff_t>(count > pending ? count - pending : 0);
  wait_until_woken(Wait::Kind::kCopies, pc, 0, pending, [first, end] {
    return std::all_of(first, end, [](const CopyGroup& group) { return group.complete(); });
  });
  for (auto group = first; group != end; ++group) {
    group->drop_finished();
    copies.waited.join(group->finished);
  }
  copies.groups.erase(first, end);
  // All groups so far, not only the last: they complete in order.
  acquire_from(copies.waited);
}

// PTX: cp.async.mbarrier.arrive{.noinc} (9.7.13.15). Arrives when all of the thread's copies so far
// are complete. Without .noinc the pending count grows by one first, so that the arrival is none
// that init has counted.
// Assumption: the arrival releases what the copies wrote, to who acquires the phase.
void async_copy_arrive(void* bar, bool noinc) {
  const Pc pc = KB_EMU_PC;
  interleave();
  const SharedPlace at = shared_place(bar, pc, "cp.async.mbarrier.arrive");
  Barrier& barrier = at.cta->barrier(at.offset, pc, at.cta != self().cta);
  if (!noinc) ++barrier.pending;
  if (!checking()) {
    const ArrivalBy by(By::kAsyncCopies);
    barrier_arrive(barrier, 1, nullptr, pc);
    return;
  }
  // The arrival stands for all of the thread's copies so far, committed or not.
  struct Arrival {
    uint32_t parts = 1;
    Knowledge knows;
  };
  const auto arrival = std::make_shared<Arrival>();
  const auto finish = [arrival, at, &barrier, pc] {
    if (--arrival->parts == 0) barrier_arrive(barrier, 1, &arrival->knows, pc);
  };
  const auto stand_for = [&](CopyGroup& group) {
    arrival->knows.join(group.finished);
    for (const auto& part : group.parts) {
      arrival->knows.join(part->actor.knows);
      part->sealed = true;
      if (part->pending == 0) continue;
      ++arrival->parts;
      part->after.push_back(finish);
    }
  };
  ThreadCopies& copies = own_copies();
  arrival->knows.join(copies.waited);
  for (CopyGroup& group : copies.groups) stand_for(group);
  stand_for(copies.open);
  finish();
}

// PTX has no word on copies that nobody waits for at the exit, and says what is read of them before
// a wait is undefined: that of no thread of a CTA that has gone. Formal in translated PTX, where
// published kernels leave the last turn's copies alone (CUTLASS's tutorial sgemm_sm80).
void check_copies_at_exit(Cta& cta) {
  for (const Thread& thread : cta.threads) {
    if (!thread.tma.copies) continue;
    const auto leave = [](const CopyGroup& group) {
      for (const auto& part : group.parts) {
        if (part->pending == 0) continue;
        part->gone = true;
        report(
            {.kind = Class::kExit,
             .pc = part->actor.actor.pc,
             .formal = runs_ptx(),
             .text = "a CTA exits before its cp.async is complete, which nobody has waited for"});
      }
    };
    for (const CopyGroup& group : thread.tma.copies->groups) leave(group);
    leave(thread.tma.copies->open);
  }
}

}  // namespace kb::emu
