// Bulk and tensor copies out of shared memory, and bulk groups, PTX ISA 9.1, 9.7.9.
#include <algorithm>
#include <cstring>
#include <memory>

#include "api_ptx.hpp"
#include "global_shadow.hpp"
#include "one_lane.hpp"
#include "timing.hpp"
#include "tma_issue.hpp"

namespace kb::emu {

// PTX: 9.7.9: two moments that a thread can wait for, wait_group.read and wait_group. Between them
// the source may be reused although the destination is not written.
// A bulk store in flight: the source is read, then the destination is written.
struct BulkStore {
  AsyncActor actor;  // of the reading
  Event write;       // of the writing, by the same operation
  std::vector<std::byte> bytes;
  bool read = false;
  bool written = false;
};

namespace {

// A store of these operands by a lane of the running thread's warp.
// Assumption: its lanes are fewer than 64 different stores apart.
EqualStore& equal_store(uint64_t operands, Pc pc) {
  constexpr size_t kKept = 64;
  std::deque<EqualStore>& all = self().warp->tensor.stores;
  for (EqualStore& each : all) {
    if (each.pc == pc && each.operands == operands) return each;
  }
  if (all.size() == kKept) all.pop_front();
  return all.emplace_back(EqualStore{.pc = pc, .operands = operands});
}

// PTX: every thread's copy is its own. Lanes that make the same one, as in CUTLASS's epilogues,
// read and write the same bytes: in translated PTX it is one store, which is in the groups of all.
// Not modelled: that of a lane comes later than the first one's.
bool made_by_another_lane(EqualStore& same, const std::byte* from, uint32_t bytes,
                          const std::function<void(const std::byte*)>& write) {
  if (same.turns_of[self().lane]++ >= same.turns) {
    ++same.turns;
    return false;
  }
  BulkStore& store = *same.store;
  if (store.written) {
    write(from);
  } else if (store.read) {
    store.bytes.assign(from, from + bytes);
  }
  self().tma.open.push_back(same.store);
  return true;
}

// PTX: completion mechanism .bulk_group: reads and writes through the async proxy, in no order with
// the thread's other accesses.
// Starts a copy out of shared memory. each_part(each) calls each(offset, bytes) for what it reads
// of the `bytes` from `from` on, write(image) writes what was there, check(actor) checks where.
// The reading and the writing are two tasks, so that schedules exist in which a source is
// overwritten between issue and read, or a result is missed between read and write.
// `operands`: what it is of, for lanes that make the same one.
template <typename Parts, typename Check, typename Write>
Event start_store(const SharedPlace& from, uint32_t bytes, uint64_t operands, bool reduces, Pc pc,
                  const char* what, const Parts& each_part, const Check& check,
                  const Write& write) {
  timed(Op::kStore, pc, bytes, 0, 0, 0, true);
  if (!checking()) {
    const Actor reader = issuer(pc, what);
    each_part([&](uint32_t at, uint32_t size) { shared_read(*from.cta, at, size, reader); });
    write(from.cta->shared + from.offset);
    return {};
  }
  EqualStore& same = equal_store(operands, pc);
  if (reduces || !runs_ptx()) {
    check_one_lane(operands, pc, what);
  } else if (made_by_another_lane(same, from.cta->shared + from.offset, bytes, write)) {
    const Actor& reader = same.store->actor.actor;
    return {reader.component, reader.epoch};
  }
  const auto store = std::make_shared<BulkStore>(BulkStore{copy_actor(pc, what), copy_slot(), {}});
  same.store = store;
  StaleCells stale;
  each_part([&](uint32_t at, uint32_t size) {
    const StaleCells more = shared_read(*from.cta, at, size, store->actor.get());
    stale.insert(stale.end(), more.begin(), more.end());
  });
  Actor writer = store->actor.get();
  writer.component = store->write.component;
  writer.epoch = store->write.epoch;
  check(writer);
  // Once, by whichever of the two tasks comes first.
  const auto read = [from, bytes, store, stale = std::move(stale)] {
    if (store->read) return;
    store->bytes.resize(bytes);
    shared_async_bytes(*from.cta, from.offset, bytes, stale, store->bytes.data());
    store->read = true;
  };
  // After its group was waited for with .read the store may outlive the CTA; else check_tma_at_exit
  // says so.
  submit(pc, read, true);
  submit(
      pc,
      [read, store, write] {
        read();
        write(store->bytes.data());
        store->written = true;
        store->bytes = {};
      },
      true);
  self().tma.open.push_back(store);
  return {store->actor.actor.component, store->actor.actor.epoch};
}

// Whether all stores of a group have come so far.
bool done(const BulkGroup& group, bool BulkStore::* stage) {
  return std::all_of(group.stores.begin(), group.stores.end(),
                     [stage](const auto& store) { return (*store).*stage; });
}

// The thread knows of an event of its own operations: whatever these knew, it knew at the issue.
void know(Thread& thread, const Event& event) {
  uint32_t& epoch = thread.knows.seen.at[event.component];
  epoch = std::max(epoch, event.epoch);
}

// Drops groups at the front that nobody has to wait for any more; a later wait without .read covers
// their writes, too.
void drop_finished(ThreadTma& tma) {
  std::vector<BulkGroup>& groups = tma.groups;
  const auto needed = std::find_if(groups.begin(), groups.end(), [](const BulkGroup& group) {
    return !group.stores.empty() && !(group.waited && done(group, &BulkStore::written));
  });
  for (auto group = groups.begin(); group != needed; ++group) {
    for (const auto& store : group->stores) tma.dropped.push_back(store->write);
  }
  groups.erase(groups.begin(), needed);
}

// PTX: 9.7.9.27.1.3: the operation is on elements of the map's type.
BulkReduction reduction_of(const MapImage& map, BulkOperation operation, Pc pc) {
  // In the order of CUtensorMapDataType, from UINT32 on; FLOAT32_FTZ is the last.
  constexpr BulkElement kElements[] = {BulkElement::kU32, BulkElement::kS32,  BulkElement::kU64,
                                       BulkElement::kS64, BulkElement::kF16,  BulkElement::kF32,
                                       BulkElement::kF64, BulkElement::kBf16, BulkElement::kF32};
  const uint32_t number = map.element - 2u;
  if (number < std::size(kElements)) {
    const BulkReduction found{operation, kElements[number]};
    if (has_operation(found)) return found;
  }
  fail({.kind = Class::kDescriptor,
        .pc = pc,
        .text = "a TMA reduction that elements of type " + std::to_string(map.element) +
                " of the tensor map do not have"});
}

}  // namespace

// PTX: cp.async.bulk.global.shared::cta.bulk_group (9.7.9), and cp.reduce.async.bulk with an
// operation: relaxed at the scope of the GPU, each element by itself.
// Not modelled: .cp_mask.
void bulk_store(void* dst, const void* src, uint32_t bytes, const BulkReduction& reduction) {
  const Pc pc = KB_EMU_PC;
  const bool reduces = reduction.operation != BulkOperation::kCopy;
  const char* what = reduces ? "bulk reduction" : "bulk store";
  interleave();
  const SharedPlace from = shared_place(src, pc, what);
  check_own(from, pc, what);
  check_bulk(from.offset, dst, bytes, pc, what);
  global_access(dst, bytes, true, pc, what);
  const uint64_t operands = mix(reinterpret_cast<uint64_t>(dst), from.offset);
  start_store(
      from, bytes, operands, reduces, pc, what, whole(from.offset, bytes),
      [&](Actor writer) {
        writer.atomic = reduces;
        global_store(dst, bytes, writer);
      },
      [dst, bytes, reduces, reduction](const std::byte* image) {
        if (!reduces) {
          std::memcpy(dst, image, bytes);
          return;
        }
        reduce_into(static_cast<std::byte*>(dst), image, bytes, reduction);
      });
}

// PTX: cp.async.bulk.tensor.{1d … 5d}.global.shared::cta.tile.bulk_group (9.7.9), and
// cp.reduce.async.bulk.tensor with an operation.
void box_store(const TensorMap* map, BoxStart start, const void* src, BulkOperation operation) {
  const Pc pc = KB_EMU_PC;
  const bool reduces = operation != BulkOperation::kCopy;
  const char* what = reduces ? "TMA reduction" : "TMA store";
  interleave();
  const SharedPlace from = shared_place(src, pc, what);
  uint64_t operands = mix(reinterpret_cast<uint64_t>(map), from.offset);
  for (const int32_t at : start.at) operands = mix(operands, static_cast<uint32_t>(at));
  check_own(from, pc, what);
  check_aligned(from.offset, kBoxAlignment, pc, what, "an address in shared memory");
  const Box box(map_for_copy(map, start, pc, what), start);
  check_box(box, true, pc, what);
  const BulkReduction reduction = reduces ? reduction_of(box.map, operation, pc) : BulkReduction{};
  const Event copy = start_store(
      from, box.footprint, operands, reduces, pc, what,
      [&](const auto& each) { box.each_part(from.offset, each); },
      [&](Actor writer) {
        writer.atomic = reduces;
        box.check_global(true, writer);
      },
      [box, reduction, offset = from.offset](const std::byte* image) {
        box.store(image, offset, reduction);
      });
  if (checking()) map_read_by(map, copy, false, pc);
}

// PTX: cp.async.bulk.commit_group (9.7.9): per thread. An empty group is complete at once, and
// counts.
// Everything that the thread has stored since the last commit is one group.
void bulk_commit_group() {
  timed(Op::kCommitGroup, KB_EMU_CALLER, 0, 0, 0, 0, true);
  interleave();
  if (!checking()) return;
  ThreadTma& tma = self().tma;
  drop_finished(tma);
  tma.groups.push_back({std::move(tma.open)});
  tma.open.clear();
  ++tma.commits;
}

// PTX: cp.async.bulk.wait_group{.read} N (9.7.9): for the executing thread's own groups only; other
// threads' stores are theirs to wait for.
// All but the newest `pending` groups: sources read (.read), or writes made too. Only then does the
// thread know of them.
// Assumption: it also covers the reads of tensor maps by loads that complete on a barrier and were
// issued before the last commit. PTX speaks of operations that complete through bulk groups: v11,
// v15, v16, v18 and v20 rest on it.
void bulk_wait_group(uint32_t pending, bool read) {
  const Pc pc = KB_EMU_PC;
  interleave();
  timed(Op::kWaitGroup, pc, pending, read, 0, 0, true);
  if (!checking()) return;
  Thread& thread = self();
  std::vector<BulkGroup>& groups = thread.tma.groups;
  // Groups that a wait has dropped before are complete and known: counting from the newest is
  // enough.
  const size_t required = groups.size() > pending ? groups.size() - pending : 0;
  const auto stage = read ? &BulkStore::read : &BulkStore::written;
  wait_until(Wait::Kind::kBulkGroup, pc, 0, pending, [&groups, required, stage] {
    return std::all_of(groups.begin(), groups.begin() + static_cast<ptrdiff_t>(required),
                       [stage](const BulkGroup& group) { return done(group, stage); });
  });
  for (size_t i = 0; i < required; ++i) {
    BulkGroup& group = groups[i];
    for (const auto& store : group.stores) {
      know(thread, {store->actor.actor.component, store->actor.actor.epoch});
      if (!read) know(thread, store->write);
    }
    group.waited = true;
  }
  drop_finished(thread.tma);
  if (!read) {
    for (const Event& write : thread.tma.dropped) know(thread, write);
    thread.tma.dropped.clear();
  }
  map_reads_waited(pending);
}

void start_tma(Cta& cta) {
  cta.tma = {};
  start_maps(cta.cluster->launch->serial);
}

// PTX: 9.7.9: a CTA's shared memory is its own until it exits; what the async proxy does to it
// later is undefined.
// Shared memory may be given up when no copy reads it and none writes it, and somebody knows.
// Stricter: a store whose group was not waited for may be complete by chance; a kernel has to know.
// Formal in translated PTX: an H100 keeps the memory until its stores have read it, as a probe with
// CTAs that fill an SM's memory one after the other showed.
void check_tma_at_exit(Cta& cta) {
  if (!checking()) return;
  const auto pc_of = [](const auto& store) { return store->actor.actor.pc; };
  for (const Thread& thread : cta.threads) {
    if (!thread.tma.open.empty()) {
      report({.kind = Class::kExit,
              .pc = pc_of(thread.tma.open.front()),
              .formal = runs_ptx(),
              .text = "a CTA exits after a bulk store that was never committed to a group and "
                      "waited for"});
    }
    for (const BulkGroup& group : thread.tma.groups) {
      if (group.waited || group.stores.empty()) continue;
      report({.kind = Class::kExit,
              .pc = pc_of(group.stores.front()),
              .formal = runs_ptx(),
              .text = "a CTA exits after a bulk store without waiting until its source was read"});
    }
  }
  for (const Incoming& incoming : cta.tma.incoming) {
    const auto observed = [&](const Thread& thread) {
      return thread.knows.seen.covers(incoming.copy.component, incoming.copy.epoch);
    };
    bool known = false;
    for (const Cta& each : cta.cluster->ctas) {
      known = known || std::any_of(each.threads.begin(), each.threads.end(), observed);
    }
    if (known) continue;
    report({.kind = Class::kExit,
            .pc = incoming.pc,
            .text = "a CTA exits although nobody has waited for a copy into its shared memory"});
  }
}

}  // namespace kb::emu
