// The shadow of memory: an access is in order with an earlier one if the later actor's knowledge
// covers the earlier one's epoch (as in FastTrack, Flanagan and Freund 2009). Conflicting accesses
// without order are what PTX ISA 9.1, chapter 8, leaves undefined.
#include <algorithm>

#include "assumptions.hpp"
#include "launch.hpp"

namespace kb::emu {

namespace {

// It would, behind tcgen05.fence.
bool ordered_by_fences(const AccessRecord& earlier, const Actor& later) {
  const Clock& unfenced = later.knows->unfenced;
  return !unfenced.at.empty() && unfenced.covers(earlier.component, earlier.epoch);
}

// It is, if a wait for a wgmma-group speaks for all warps of the warpgroup.
bool ordered_by_group(const AccessRecord& earlier, const Actor& later) {
  const Clock& grouped = later.knows->grouped;
  return earlier.tensor && !grouped.at.empty() && grouped.covers(earlier.component, earlier.epoch);
}

// The word that tcgen05.alloc has written; once a thread has read it, it is there.
bool is_alloc(const AccessRecord& earlier) {
  return std::string_view(earlier.what) == "tcgen05.alloc";
}

// Cells are four bytes; accesses to different bytes of one do not conflict.
bool overlap(const AccessRecord& earlier, const Actor& later) {
  return (earlier.bytes & later.bytes) != 0;
}

// PTX: 8.7: two overlapping operations conflict if one is a write; morally strong ones, as atomics
// of one scope are, are no race.
// Whether the two need no order, or have it.
// Not modelled: scopes. Atomics of too narrow a scope are taken for strong.
bool compatible(const AccessRecord& earlier, const Actor& later) {
  return (earlier.atomic && later.atomic) || !overlap(earlier, later) || ordered(earlier, later);
}

// Why an access by another CTA is not ordered, where an acquire at cluster scope would have ordered
// it: for a finding's text.
std::string missing_scope(const Cta& cta, const AccessRecord& earlier) {
  for (const Cta& each : cta.cluster->ctas) {
    for (const Thread& thread : each.threads) {
      const std::vector<uint32_t>& passed = thread.passed_by.at;
      if (passed.size() > earlier.component && passed[earlier.component] >= earlier.epoch) {
        return ": the wait for it acquires at scope cta, and another CTA released it";
      }
    }
  }
  return {};
}

// Whether the thread of an earlier access has exited.
bool by_exited(const Cta& cta, const AccessRecord& earlier) {
  return std::any_of(cta.threads.begin(), cta.threads.end(), [&earlier](const Thread& thread) {
    return thread.exited && thread.component == earlier.component;
  });
}

// What the order lacks, as far as that can be told.
std::string missing(const Cta& cta, const AccessRecord& earlier, const Actor& later,
                    bool fence_only) {
  std::string scope = missing_scope(cta, earlier);
  if (!scope.empty() || !fence_only) return scope;
  if (by_exited(cta, earlier)) {
    return ": the thread has exited, and a barrier hands on what those have done that come to it";
  }
  if (!earlier.tensor && !earlier.async && !later.tensor) {
    return ": a .sync.aligned instruction, which orders no memory, is all that is between its lane "
           "and the lane that synchronizes";
  }
  const bool loads = std::string_view(earlier.what) == "tcgen05.ld";
  return std::string(", for want of tcgen05.") + (loads ? "wait::ld or tcgen05." : "") +
         "fence around the synchronization";
}

const char* place(Shadow::Space space) {
  return space == Shadow::Space::kShared ? "shared memory" : "tensor memory";
}

}  // namespace

Shadow::Shadow(Cta& cta, Space space, uint32_t cells)
    : cta_(cta), space_(space), writer_(cells), reader_(cells) {}

void Shadow::reset() {
  std::fill(writer_.begin(), writer_.end(), 0);
  std::fill(reader_.begin(), reader_.end(), 0);
}

// One finding for a read, of its first cell that holds nothing.
// Stricter: PTX gives uninitialized shared memory an undefined value, and a kernel may read it as
// long as nothing depends on it.
void Shadow::check_written(uint32_t first, uint32_t count, const Actor& actor) {
  const auto begin = writer_.begin() + first;
  const auto found = std::find(begin, begin + count, 0u);
  if (found == begin + count) return;
  const auto cell = static_cast<int64_t>(found - writer_.begin());
  report(
      {.kind = Class::kUnwritten,
       .pc = actor.pc,
       .shared_offset = space_ == Space::kShared ? cell * 4 : -1,
       .tmem_column = space_ == Space::kTmem ? cell / 8 : -1,
       .text = std::string(actor.what) + " reads " + place(space_) + " that nothing has written"});
}

void Shadow::note_unwritten(uint32_t cell, const Actor& actor) {
  if (writer_[cell] != 0) return;
  note({.kind = Class::kUnwritten,
        .pc = actor.pc,
        .shared_offset = int64_t{cell} * 4,
        .text = std::string(actor.what) + " makes something of " + place(space_) +
                " that nothing has written"});
}

// The last writers of a cell against an access.
void Shadow::check_writer(uint32_t cell, uint32_t writer, const Actor& actor, bool reading) {
  const AccessLog& log = cta_.cluster->accesses;
  log.visit(writer, [&](uint32_t index) {
    // Most accesses: what is to be reported would take registers of them.
    if (!actor.async && compatible(log.at(index), actor)) return true;
    return check_writer_record(cell, index, actor, reading);
  });
}

// PTX: 8.6: a generic write and an async access to it need fence.proxy.async between, besides the
// order.
// One earlier write: is it ordered before the access, and if the access is of the async proxy, was
// it published to it?
// Assumption: an asynchronous write over a generic one needs that fence, too: without it the older
// store may land last.
bool Shadow::check_writer_record(uint32_t cell, uint32_t index, const Actor& actor, bool reading) {
  const AccessRecord& earlier = cta_.cluster->accesses.at(index);
  const bool in_order = compatible(earlier, actor);
  const bool fence_only = !in_order && ordered_by_fences(earlier, actor);
  // What only tcgen05.fence lacks may lack the proxy fence, too.
  if (in_order || fence_only) {
    if (actor.async && !earlier.async && overlap(earlier, actor) && space_ == Space::kShared &&
        !actor.knows->published.covers(earlier.component, earlier.epoch)) {
      report({.kind = Class::kProxyFence,
              .pc = actor.pc,
              .other_pc = earlier.pc,
              .shared_offset = cell * 4,
              .other_thread = earlier.thread,
              .formal = !reading && is_alloc(earlier) && reader_[cell] != 0,
              .text = std::string(actor.what) + (reading ? " reads" : " overwrites") +
                      " shared memory that was written by ordinary stores without "
                      "fence.proxy.async between"});
      return false;
    }
    if (in_order) return true;
  }
  Class kind = Class::kRace;
  std::string text = std::string(actor.what) + (reading ? " reads " : " writes ") + place(space_);
  if (reading && (earlier.async || earlier.tensor)) {
    kind = Class::kEarlyRead;
    text += std::string(" that ") + earlier.what + " writes, before its completion was observed";
  } else if (!reading && (earlier.async || earlier.tensor)) {
    kind = Class::kOverwrite;
    text += std::string(" that ") + earlier.what + " writes, whose completion was not observed";
  } else {
    text += std::string(" that ") + earlier.what + " by another thread writes, without order";
    if (fence_only && by_exited(cta_, earlier)) {
      kind = Class::kNamedBarrier;
      text = "not all threads come to a barrier of all threads: " + text;
    }
  }
  text += missing(cta_, earlier, actor, fence_only);
  report({.kind = kind,
          .pc = actor.pc,
          .other_pc = earlier.pc,
          .shared_offset = space_ == Space::kShared ? int64_t{cell} * 4 : -1,
          .tmem_column = space_ == Space::kTmem ? int64_t{cell} / 8 : -1,
          .other_thread = earlier.thread,
          .one_warp = lanes_of_one_warp(cta_, earlier.component, actor.component),
          .formal = fence_only,
          .same_value = kind == Class::kRace && !reading && actor.same,
          .text = std::move(text)});
  return false;
}

// PTX: 8.7: a write conflicts with every read that is in no order with it.
// A write against all reads since the last write.
// Assumption: a generic write after an async read needs order only, no proxy fence: the read is
// over when its completion was observed.
// Assumption: kGroupsOfWarpgroups, see wgmma.cpp.
// Assumption: kReadsBeforeAsync. By 8.9.5 (proxy-preserved base causality order) a generic read is
// before an async write only if a proxy fence is on the way from the one to the other.
void Shadow::check_readers(uint32_t cell, uint32_t reader, const Actor& actor) {
  const AccessLog& log = cta_.cluster->accesses;
  log.visit(reader, [&](uint32_t index) {
    if (!actor.async && compatible(log.at(index), actor)) return true;
    return check_reader_record(cell, index, actor);
  });
}

bool Shadow::check_reader_record(uint32_t cell, uint32_t index, const Actor& actor) {
  const AccessRecord& earlier = cta_.cluster->accesses.at(index);
  if (compatible(earlier, actor)) {
    if (actor.async && space_ == Space::kShared && !earlier.async && overlap(earlier, actor) &&
        !actor.knows->published.covers(earlier.component, earlier.epoch)) {
      assume(Assumption::kReadsBeforeAsync);
    }
    return true;
  }
  if (ordered_by_group(earlier, actor)) {
    assume(Assumption::kGroupsOfWarpgroups);
    return true;
  }
  const bool fence_only = ordered_by_fences(earlier, actor);
  const bool asynchronous = earlier.async || earlier.tensor || actor.async || actor.tensor;
  report({.kind = asynchronous ? Class::kOverwrite : Class::kRace,
          .pc = actor.pc,
          .other_pc = earlier.pc,
          .shared_offset = space_ == Space::kShared ? int64_t{cell} * 4 : -1,
          .tmem_column = space_ == Space::kTmem ? int64_t{cell} / 8 : -1,
          .other_thread = earlier.thread,
          .one_warp = lanes_of_one_warp(cta_, earlier.component, actor.component),
          .formal = fence_only,
          .text = std::string(actor.what) + " writes " + place(space_) + " that " + earlier.what +
                  " may still read" + missing(cta_, earlier, actor, fence_only)});
  return false;
}

// Cells are checked in runs that have the same last writers and readers.
// Assumption: rows of an operand that no result depends on may be unwritten; values alone show
// whether that was right.
void Shadow::read(uint32_t first, uint32_t count, const Actor& actor) {
  // An asynchronous operation may read rows of a tile that no result depends on.
  if (!actor.async || space_ == Space::kTmem) check_written(first, count, actor);
  AccessLog& log = cta_.cluster->accesses;
  const uint32_t record = log.record_of(actor);
  uint32_t checked = 0;
  uint32_t previous = 0;
  uint32_t replacement = record;
  for (uint32_t cell = first; cell < first + count; ++cell) {
    const uint32_t writer = writer_[cell];
    if (writer != 0 && writer != checked) {
      check_writer(cell, writer, actor, true);
      checked = writer;
    }
    const uint32_t reader = reader_[cell];
    if (reader != previous) {
      previous = reader;
      replacement = log.with_reader(reader, record, actor);
    }
    reader_[cell] = previous == 0 ? record : replacement;
  }
}

// Ends what the cell held: earlier readers need no check any more.
void Shadow::write(uint32_t first, uint32_t count, const Actor& actor) {
  AccessLog& log = cta_.cluster->accesses;
  const uint32_t record = log.record_of(actor);
  uint32_t checked_writer = 0;
  uint32_t checked_reader = 0;
  for (uint32_t cell = first; cell < first + count; ++cell) {
    const uint32_t writer = writer_[cell];
    if (writer != 0 && writer != checked_writer) {
      check_writer(cell, writer, actor, false);
      checked_writer = writer;
    }
    const uint32_t reader = reader_[cell];
    if (reader != 0 && reader != checked_reader) {
      check_readers(cell, reader, actor);
      checked_reader = reader;
    }
    // Of atomic writes in no order the last is the writer; as readers, all meet the next plain one.
    reader_[cell] = actor.atomic ? log.with_reader(reader, record, actor) : 0;
    writer_[cell] =
        writer == 0 || actor.bytes == kWholeCell ? record : log.with_writer(writer, record, actor);
  }
}

// PTX: 8.6, fence.proxy.async: publishes what happened before it in the fencing thread; the fence
// itself must happen before the async access.
// Whether the async proxy sees the last write: by itself if it made it, else after a fence.
bool Shadow::published(uint32_t cell, const Actor& actor) const {
  const uint32_t writer = writer_[cell];
  if (writer == 0) return true;
  const AccessLog& log = cta_.cluster->accesses;
  bool all = true;
  log.visit(writer, [&](uint32_t index) {
    const AccessRecord& record = log.at(index);
    all = record.async || actor.knows->published.covers(record.component, record.epoch);
    return all;
  });
  return all;
}

}  // namespace kb::emu
