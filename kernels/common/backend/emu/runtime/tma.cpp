// Bulk and tensor copies into shared memory, PTX ISA 9.1, 9.7.9. When checking, a copy is an actor
// of its own: its accesses are checked at the issue, and its bytes move when the schedule says.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "global_shadow.hpp"
#include "timing.hpp"
#include "tma_issue.hpp"

namespace kb::emu {

// Who copies when nobody checks: bounds still count.
Actor issuer(Pc pc, const char* what) {
  Actor actor;
  actor.pc = pc;
  actor.what = what;
  actor.async = true;
  return actor;
}

// PTX: 9.7.9: what is not aligned as the instruction asks is undefined; an H200 traps on most of
// it.
void check_aligned(uint64_t value, uint32_t alignment, Pc pc, const char* what, const char* which) {
  if (value % alignment == 0) return;
  fail({.kind = Class::kAlignment,
        .pc = pc,
        .text = std::string(what) + " needs " + which + " that is a multiple of " +
                std::to_string(alignment) + " bytes"});
}

// PTX: cp.async.bulk (9.7.9): both addresses and the size are multiples of 16 bytes.
void check_bulk(uint32_t shared_offset, const void* global, uint32_t bytes, Pc pc,
                const char* what) {
  check_aligned(shared_offset, kBulkAlignment, pc, what, "an address in shared memory");
  check_aligned(reinterpret_cast<uint64_t>(global), kBulkAlignment, pc, what,
                "an address in global memory");
  check_aligned(bytes, kBulkAlignment, pc, what, "a size");
}

// Sources and barriers of these forms lie in the executing CTA's own shared memory.
// PTX's .shared::cta forms; those with .shared::cluster say so at their functions.
void check_own(const SharedPlace& place, Pc pc, const char* what) {
  if (place.cta == self().cta) return;
  fail({.kind = Class::kOutOfBounds,
        .pc = pc,
        .shared_offset = place.offset,
        .text = std::string(what) + " takes an address in the executing CTA's shared memory"});
}

namespace {

// Assumption: what an H200 does, whatever PTX's text leaves open: it takes a start outside the
// bounding box for an illegal instruction, and a store by a map whose box goes beyond the tensor.
void check_pixels(const Box& box, bool writing, Pc pc, const char* what) {
  for (uint32_t d = 1; d + 1 < box.map.rank; ++d) {
    const auto lower = static_cast<int16_t>(box.map.box[d + 1]);
    const int64_t upper = static_cast<int64_t>(box.map.dims[d]) - 1 + box.map.upper[d - 1];
    const auto words = [&](const std::string& how) {
      return std::string(what) + how + std::to_string(lower) + " … " + std::to_string(upper) +
             " along dimension " + std::to_string(d);
    };
    if (box.at[d] < lower || box.at[d] > upper) {
      fail({.kind = Class::kOutOfBounds,
            .pc = pc,
            .text =
                words(" starts at " + std::to_string(box.at[d]) + ", outside its pixels' box ")});
    }
    if (writing && (lower < 0 || box.map.upper[d - 1] > 0)) {
      fail({.kind = Class::kOutOfBounds,
            .pc = pc,
            .text = words(" by a map whose pixels' box goes beyond the tensor: ")});
    }
  }
}

}  // namespace

// PTX: cp.async.bulk.tensor, tiled mode (5.5.3, 9.7.9).
// What the hardware refuses by a trap, and memory that is nobody's.
// Assumption: the first coordinate's 16-byte multiple and the refusal of negative coordinates of
// stores are what an H200 does (tests/gpu/test_native_parity.py); PTX's text says neither.
// Assumption: elements outside the tensor are never accessed, so only the part inside has to be
// somebody's buffer.
void check_box(const Box& box, bool writing, Pc pc, const char* what) {
  const int64_t x_bytes = box.at[0] * static_cast<int64_t>(element_bytes(box.map));
  if (x_bytes % kBulkAlignment != 0) {
    fail({.kind = Class::kAlignment,
          .pc = pc,
          .text = std::string(what) + " at x = " + std::to_string(box.at[0]) +
                  ": a box starts at a multiple of 16 bytes of the contiguous dimension"});
  }
  if (box.start.mode == BoxMode::kIm2col) check_pixels(box, writing, pc, what);
  for (uint32_t d = 0; writing && d < box.map.rank; ++d) {
    if (box.at[d] >= 0) continue;
    fail({.kind = Class::kOutOfBounds,
          .pc = pc,
          .text = std::string(what) + " starts at the negative coordinate " +
                  std::to_string(box.at[d]) + "; only loads may"});
  }
  if (box.first == box.end) return;
  const uint64_t end = box.end + (writing ? box.stored_end() - box.inside_end : 0);
  global_access(reinterpret_cast<const void*>(box.first), end - box.first, writing, pc, what);
}

namespace {

// Where a copy ends, and the barrier that it completes on.
struct Landing {
  Cta* cta;
  uint32_t bytes;
  Cta* bar_cta;
  uint32_t bar_offset;
};

// PTX: 9.7.9, completion mechanism mbarrier::complete_tx::bytes: the writes are weak, through the
// async proxy; complete-tx on the barrier has release semantics at scope .cluster, so that who
// acquires the phase sees them.
// Starts a copy into shared memory. each_part(each) calls each(offset, bytes) for what it occupies,
// move() writes the bytes there. Returns the copy's event when checking.
// Assumption: the bytes of one copy appear all at once, at its completion. On hardware they trickle
// in, and a reader that comes too early may see any part: the pattern in the meantime stands for
// all of those.
template <typename Parts, typename Move>
Event start_copy(const Landing& to, AsyncActor* actor, Pc pc, const char* what,
                 const Parts& each_part, const Move& move) {
  const bool remote = to.cta != self().cta || to.bar_cta != self().cta;
  Barrier& barrier = to.bar_cta->async_barrier(to.bar_offset, pc, remote, what);
  if (!checking()) {
    const Actor writer = issuer(pc, what);
    each_part(
        [&](uint32_t offset, uint32_t bytes) { shared_write(*to.cta, offset, bytes, writer); });
    move();
    barrier_complete_tx(barrier, to.bytes, nullptr, pc);
    return {};
  }
  const auto copy = std::make_shared<AsyncActor>(std::move(*actor));
  const Event event = {copy->actor.component, copy->actor.epoch};
  each_part([&](uint32_t offset, uint32_t bytes) {
    shared_write(*to.cta, offset, bytes, copy->get());
    // Who reads too early finds neither the old nor the new bytes.
    if (!copy->actor.atomic) std::memset(to.cta->shared + offset, 0xff, bytes);
  });
  // Kept until somebody knows that the copy is complete: at the CTA's exit none may be left.
  std::vector<Incoming>& incoming = to.cta->tma.incoming;
  const Clock& seen = self().knows.seen;
  std::erase_if(incoming, [&](const Incoming& old) {
    return seen.covers(old.copy.component, old.copy.epoch);
  });
  incoming.push_back({event, pc});
  barrier.bytes_in_flight += to.bytes;
  const bool afar = to.bar_cta != self().cta;
  submit(pc, [to, copy, move, pc, afar, &barrier] {
    move();
    barrier.bytes_in_flight -= to.bytes;
    barrier_complete_tx(barrier, to.bytes, &copy->knows, pc, afar);
  });
  return event;
}

// PTX: .multicast::cluster (9.7.9): a 16-bit mask of %cluster_ctarank; destination and barrier lie
// at the same CTA-relative offsets in each.
// Calls each(cta) for the CTAs that a load goes to.
// Assumption: each destination's copy completes by itself, in no order with the others'.
template <typename Each>
void each_destination(int32_t mask, Pc pc, const char* what, const Each& each) {
  Cta& own = *self().cta;
  if (mask == kNoMask) {
    each(own);
    return;
  }
  Cluster& cluster = *own.cluster;
  if (mask == 0 || (static_cast<uint32_t>(mask) >> cluster.ctas.size()) != 0) {
    fail({.kind = Class::kDescriptor,
          .pc = pc,
          .text = std::string(what) + " with a multicast mask of " + std::to_string(mask) +
                  " in a cluster of " + std::to_string(cluster.ctas.size())});
  }
  for (Cta& cta : cluster.ctas) {
    if ((mask >> cta.rank & 1) == 0) continue;
    if (cta.exited()) {
      fail({.kind = Class::kExit,
            .pc = pc,
            .text = std::string(what) + " to a CTA that has exited"});
    }
    each(cta);
  }
}

// Of the boxes that have been loaded, the newest at each place.
void keep_loaded(Cta& cta, const LoadedBox& box) {
  std::vector<LoadedBox>& all = cta.tma.loaded;
  const auto covered = [&box](const LoadedBox& each) {
    return each.offset < box.offset + box.bytes && box.offset < each.offset + each.bytes;
  };
  all.erase(std::remove_if(all.begin(), all.end(), covered), all.end());
  if (all.size() < kMostLoaded) all.push_back(box);
}

// PTX: the barrier counts the bytes of the whole box, those included that lie outside the tensor
// and are filled.
// One box, to one CTA or to all of a mask; each destination completes on the barrier at the same
// offset in its own memory, or with `pair` in that CTA of its pair that has the barrier's parity.
// PTX: the destination is aligned to 128 bytes, whatever the swizzle.
void load_box(const SharedPlace& dst, const TensorMap* map, const BoxStart& start, int32_t mask,
              const SharedPlace& bar, bool pair, Pc pc) {
  const char* what = "TMA load";
  check_own(dst, pc, what);
  check_aligned(dst.offset, kBoxAlignment, pc, what, "an address in shared memory");
  const Box box(map_for_copy(map, start, pc, what), start);
  check_box(box, false, pc, what);
  timed(Op::kLoad, pc, box.first, box.bytes, mask == kNoMask ? 1 : static_cast<uint32_t>(mask),
        static_cast<uint32_t>(box.first == box.end ? 0 : box.rows), true);
  const ArrivalBy by(By::kCopy);
  bool unread = checking();
  each_destination(mask, pc, what, [&](Cta& cta) {
    Cta* bar_cta = mask == kNoMask ? bar.cta : &cta;
    if (mask != kNoMask && pair) {
      bar_cta = &cta.cluster->cta((cta.rank & ~1u) | (bar.cta->rank & 1));
    }
    AsyncActor actor = copy_actor(pc, what);
    if (std::exchange(unread, false)) box.check_global(false, actor.get());
    const Event copy = start_copy(
        {&cta, box.bytes, bar_cta, bar.offset}, &actor, pc, what,
        [&](const auto& each) { box.each_part(dst.offset, each); },
        [box, &cta, offset = dst.offset] { box.load(cta.shared, offset); });
    if (!checking()) return;
    map_read_by(map, copy, true, pc);
    keep_loaded(cta, {dst.offset, box.footprint, box.swizzle_bytes(), pc});
  });
}

}  // namespace

// PTX: cp.async.bulk.shared::{cta,cluster}.global.mbarrier::complete_tx::bytes (9.7.9).
// cp.async.bulk.shared.global, with or without .multicast.
void bulk_load(void* dst, const void* src, uint32_t bytes, void* bar, int32_t mask) {
  const Pc pc = KB_EMU_PC;
  const char* what = "bulk load";
  interleave();
  const SharedPlace to = shared_place(dst, pc, what);
  const SharedPlace bar_at = shared_place(bar, pc, what);
  check_own(to, pc, what);
  check_own(bar_at, pc, what);
  check_bulk(to.offset, src, bytes, pc, what);
  global_access(src, bytes, false, pc, what);
  timed(Op::kLoad, pc, reinterpret_cast<uint64_t>(src), bytes,
        mask == kNoMask ? 1 : static_cast<uint32_t>(mask), 1, true);
  const ArrivalBy by(By::kCopy);
  bool unread = checking();
  each_destination(mask, pc, what, [&](Cta& cta) {
    AsyncActor actor = copy_actor(pc, what);
    if (std::exchange(unread, false) && !global_load(src, bytes, actor.get())) {
      report_unwritten(src, false, false, pc, what);
    }
    start_copy(
        {&cta, bytes, &cta, bar_at.offset}, &actor, pc, what, whole(to.offset, bytes),
        [&cta, offset = to.offset, src, bytes] { std::memcpy(cta.shared + offset, src, bytes); });
  });
}

// PTX: cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes (9.7.9): the barrier
// lies in the destination's CTA.
// cp.async.bulk.shared::cluster.shared::cta: between two CTAs' shared memory.
// The source is read when the copy executes, through the async proxy: ordinary stores need
// fence.proxy.async before it, and a store after the issue is an overwrite until the barrier's
// phase is known to be complete.
// PTX: cp.reduce.async.bulk.shared::cluster.shared::cta (9.7.9.25) with an operation: relaxed at
// scope .cluster, each element by itself.
void bulk_copy_to_cluster(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar,
                          const BulkReduction& reduction) {
  const Pc pc = KB_EMU_PC;
  const bool reduces = reduction.operation != BulkOperation::kCopy;
  const char* what = reduces ? "bulk reduction between CTAs" : "bulk copy between CTAs";
  interleave();
  const SharedPlace to = shared_place(dst, pc, what);
  const SharedPlace bar_at = shared_place(bar, pc, what);
  const SharedPlace from = shared_place(src, pc, what);
  check_own(from, pc, what);
  check_aligned(to.offset, kBulkAlignment, pc, what, "a destination");
  check_aligned(from.offset, kBulkAlignment, pc, what, "a source");
  check_aligned(bytes, kBulkAlignment, pc, what, "a size");
  if (bar_at.cta != to.cta) {
    fail({.kind = Class::kDescriptor,
          .pc = pc,
          .shared_offset = bar_at.offset,
          .text = std::string(what) + ": the mbarrier lies in another CTA than the destination"});
  }
  AsyncActor actor = copy_actor(pc, what);
  actor.actor.atomic = reduces;
  // The async proxy's view of the source as of the issue: what was not published then is not seen
  // later.
  StaleCells stale =
      shared_read(*from.cta, from.offset, bytes, checking() ? actor.get() : issuer(pc, what));
  start_copy({to.cta, bytes, bar_at.cta, bar_at.offset}, &actor, pc, what, whole(to.offset, bytes),
             [to, from, bytes, stale = std::move(stale), reduces, reduction] {
               if (stale.empty() && !reduces) {
                 std::memmove(to.cta->shared + to.offset, from.cta->shared + from.offset, bytes);
                 return;
               }
               std::vector<std::byte> image(bytes);
               shared_async_bytes(*from.cta, from.offset, bytes, stale, image.data());
               std::byte* const target = to.cta->shared + to.offset;
               if (reduces) return reduce_into(target, image.data(), bytes, reduction);
               std::memcpy(target, image.data(), bytes);
             });
}

// PTX: cp.async.bulk.tensor.{1d …
// 5d}.shared::{cta,cluster}.global.tile.mbarrier::complete_tx::bytes (9.7.9).
// .tile::gather4 and .im2col: the rows of a Box. Not modelled: what .L2::cache_hint does.
// cp.async.bulk.tensor.shared.global, with or without .multicast.
void box_load(void* dst, const TensorMap* map, BoxStart start, void* bar, int32_t mask) {
  const Pc pc = KB_EMU_PC;
  interleave();
  const SharedPlace bar_at = shared_place(bar, pc, "TMA load");
  check_own(bar_at, pc, "TMA load");
  load_box(shared_place(dst, pc, "TMA load"), map, start, mask, bar_at, false, pc);
}

// PTX: the same with .cta_group::2 (sm_100a): the signal may go to the barrier of the CTA whose
// %cluster_ctarank differs in the last bit.
// With cta_group::2 the barrier may be in either CTA of the pair.
// Without a mask the data stay in the executing CTA: only the signal crosses over. With one, each
// destination's signal goes to the CTA of its pair whose rank is as odd or even as the barrier's.
void box_load_pair(void* dst, const TensorMap* map, BoxStart start, uint32_t bar, int32_t mask) {
  const Pc pc = KB_EMU_PC;
  interleave();
  const SharedPlace bar_at = shared_place(bar, pc, "TMA load");
  if (bar_at.cta->rank / 2 != self().cta->rank / 2 || self().cta->cluster->ctas.size() % 2 != 0) {
    fail({.kind = Class::kDescriptor,
          .pc = pc,
          .shared_offset = bar_at.offset,
          .text = "TMA load with cta_group::2 completes on an mbarrier outside its CTA pair"});
  }
  load_box(shared_place(dst, pc, "TMA load"), map, start, mask, bar_at, true, pc);
}

// PTX: cp.async.bulk.prefetch.L2 (9.7.9).
// To L2: nothing moves, addresses and sizes still count.
// Stricter: nothing is read, and yet a prefetch beyond a buffer is out of bounds: no kernel means
// it.
void bulk_prefetch(const void* src, uint32_t bytes) {
  const Pc pc = KB_EMU_PC;
  const char* what = "bulk prefetch";
  interleave();
  check_bulk(0, src, bytes, pc, what);
  global_access(src, bytes, false, pc, what);
}

// PTX: cp.async.bulk.prefetch.tensor (9.7.9). It reads the map through the tensormap proxy, as a
// copy does.
void box_prefetch(const TensorMap* map, BoxStart start) {
  const Pc pc = KB_EMU_PC;
  const char* what = "TMA prefetch";
  interleave();
  const Box box(map_for_copy(map, start, pc, what), start);
  check_box(box, false, pc, what);
}

// PTX: createpolicy (9.7.9) and .L2::cache_hint, a performance hint: an operand from anywhere else
// is undefined.
// createpolicy makes these values; what the L2 does with them is not modelled.
void check_policy(uint64_t policy) {
  const Pc pc = KB_EMU_PC;
  // What createpolicy returns for a whole fraction: normal, evict-first, evict-last.
  constexpr uint64_t kKnown[] = {0x1000000000000000u, 0x12f0000000000000u, 0x14f0000000000000u};
  if (std::find(std::begin(kKnown), std::end(kKnown), policy) != std::end(kKnown)) return;
  report({.kind = Class::kDescriptor,
          .pc = pc,
          .text = "a cache policy that no createpolicy has made"});
}

}  // namespace kb::emu
