// Tensor memory: allocation, loads and stores. PTX ISA 9.1, 9.7.16.
#include "tmem.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "api_ptx.hpp"
#include "api_tensor.hpp"
#include "collected.hpp"

namespace kb::emu {

namespace {

constexpr uint64_t kNoRoom = ~uint64_t{0};
constexpr uint32_t kPoison = 0xffffffff;  // NaN

std::string columns_of(uint32_t column, uint32_t count) {
  return "columns " + std::to_string(column) + " … " + std::to_string(column + count - 1);
}

// The lowest free range; ranges start on a multiple of their size.
// Assumption: lowest address first, aligned to the size. PTX promises an address, no place: kernels
// that compute with column 0 are wrong elsewhere, and not found here.
uint64_t free_range(const CtaTensor& tensor, uint32_t columns) {
  for (uint32_t base = 0; base < kTmemColumns; base += columns) {
    const bool taken = std::any_of(
        tensor.allocations.begin(), tensor.allocations.end(), [&](const TmemAllocation& each) {
          return base < each.base + each.columns && each.base < base + columns;
        });
    if (!taken) return base;
  }
  return kNoRoom;
}

// PTX: with cta_group::2 one warp of each CTA of the pair has to execute it, and it may block until
// both have.
// Returns when the other CTA of the pair has entered its operation with the same number, or is as
// far with it as `count` says.
template <typename Count>
void meet_pair(const Cta* peer, Count count, uint64_t number, Pc pc) {
  if (peer == nullptr) return;
  wait_until(Wait::Kind::kTmemAlloc, pc, 0, 0,
             [=] { return std::invoke(count, peer->tensor) >= number; });
}

// Assumption: PTX has the pair's operations use one address for both CTAs; that the allocator
// returns equal ones is believed, where both allocate in the same order.
// cta_group::2 uses the same columns in both CTAs, so their allocations have to agree.
void check_pair_bases(const Cta& cta, const Cta* peer, Pc pc) {
  if (peer == nullptr) return;
  const size_t last = cta.tensor.bases.size() - 1;
  if (peer->tensor.bases.size() <= last || peer->tensor.bases[last] == cta.tensor.bases[last]) {
    return;
  }
  fail({.kind = Class::kTmemAllocation,
        .pc = pc,
        .tmem_column = cta.tensor.bases[last],
        .text = "tcgen05.alloc.cta_group::2 gives column " +
                std::to_string(cta.tensor.bases[last]) + " here and column " +
                std::to_string(peer->tensor.bases[last]) +
                " in the other CTA of the pair: their allocations differ"});
}

}  // namespace

// PTX: 9.7.16: access to columns that are not allocated is undefined.
// Columns outside an allocation are nobody's.
TmemCells& tmem_columns(Cta& cta, uint32_t column, uint32_t count, Pc pc, const char* what) {
  for (const TmemAllocation& each : cta.tensor.allocations) {
    if (column >= each.base && column + count <= each.base + each.columns) {
      return *cta.tensor.cells;
    }
  }
  std::string text = std::string(what) + " uses " + columns_of(column, count) +
                     " of tensor memory, which are not inside an allocation:";
  if (cta.tensor.allocations.empty()) text += " there is none";
  for (const TmemAllocation& each : cta.tensor.allocations) {
    text += " " + columns_of(each.base, each.columns);
  }
  fail({.kind = Class::kTmemBounds, .pc = pc, .tmem_column = column, .text = std::move(text)});
}

// PTX: 9.7.16: all tcgen05 instructions of a kernel have the same .cta_group. A CTA pair are two
// CTAs whose %cluster_ctarank differ in the last bit.
// A kernel uses one cta_group throughout. Returns the other CTA of the pair, or null.
Cta* tensor_group(uint32_t group, Pc pc, const char* what) {
  Cta& cta = *self().cta;
  if (cta.tensor.group != 0 && cta.tensor.group != group) {
    fail({.kind = Class::kDescriptor,
          .pc = pc,
          .text = std::string(what) + ".cta_group::" + std::to_string(group) +
                  " in a kernel that uses cta_group::" + std::to_string(cta.tensor.group)});
  }
  cta.tensor.group = group;
  if (group == 1) return nullptr;
  const auto ctas = static_cast<uint32_t>(cta.cluster->ctas.size());
  if (ctas % 2 != 0) {
    fail({.kind = Class::kDescriptor,
          .pc = pc,
          .text = std::string(what) + ".cta_group::2 in a cluster of " + std::to_string(ctas) +
                  (ctas == 1 ? " CTA" : " CTAs") + ": there are no pairs"});
  }
  return &cta.cluster->cta(cta.rank ^ 1);
}

// PTX: .sync.aligned: the same instruction with the same operands in all threads of the warp, else
// undefined.
// .sync.aligned with operands that all lanes have to agree on.
uint64_t uniform_collective(const char* what, uint64_t value, Pc pc,
                            const std::function<uint64_t()>& body) {
  return collective(what, ~0u, value, pc, [&](Collective& all) {
    for (uint32_t lane = 1; lane < kWarpSize; ++lane) {
      if (all.value[lane] == all.value[0]) continue;
      fail({.kind = Class::kDivergence,
            .pc = pc,
            .text = std::string(what) + ": lane " + std::to_string(lane) +
                    " passes other operands than lane 0"});
    }
    std::fill_n(all.result, kWarpSize, body());
  });
}

// PTX: tcgen05.alloc.cta_group::{1,2}.sync.aligned.shared::cta.b32 [dst], nCols (9.7.16): blocks
// until columns are free.
// Waits until there is room. A pair allocates together, and fresh columns hold a pattern.
// The address is an ordinary (generic) store: other warps need a barrier before they read it, and
// an asynchronous reader a proxy fence.
// Not modelled: other CTAs on the same SM that hold columns; a CTA here has all 512 for itself, so
// an allocation that would block for ever beside a second CTA does not.
void tcgen05_alloc(uint32_t group, uint32_t* address, uint32_t columns) {
  const Pc pc = KB_EMU_PC;
  constexpr const char* kWhat = "tcgen05.alloc";
  interleave();
  Cta& cta = *self().cta;
  CtaTensor& tensor = cta.tensor;
  const SharedPlace place = shared_place(address, pc, kWhat);
  const uint64_t operands = uint64_t{shared_address(place)} << 32 | columns;
  const Cta* peer = tensor_group(group, pc, kWhat);
  const uint64_t number = uniform_collective(kWhat, operands, pc, [&] {
    std::string problem;
    if (!std::has_single_bit(columns) || columns < 32 || columns > kTmemColumns) {
      problem = "asks for " + std::to_string(columns) + " columns: a power of two, 32 … 512";
    } else if (columns > tensor.least_columns) {
      problem = "asks for " + std::to_string(columns) + " columns after " +
                std::to_string(tensor.least_columns) + ": the number may not grow";
    } else if (tensor.relinquished != nullptr) {
      problem = "follows tcgen05.relinquish_alloc_permit";
    } else if (place.cta != &cta || place.offset % 4 != 0) {
      problem = "writes the address to a word of the CTA's own shared memory only";
    }
    if (!problem.empty()) {
      fail({.kind = Class::kTmemAllocation,
            .pc = pc,
            .other_pc = tensor.relinquished,
            .text = std::string(kWhat) + " " + problem});
    }
    // PTX: 9.7.16: the size of later allocations of a CTA may only fall.
    tensor.least_columns = columns;
    return ++tensor.allocs;
  });
  meet_pair(peer, &CtaTensor::allocs, number, pc);
  for (;;) {
    const uint64_t base = uniform_collective(kWhat, operands, pc, [&] {
      const uint64_t range = free_range(tensor, columns);
      if (range == kNoRoom) return kNoRoom;
      const auto first = static_cast<uint32_t>(range);
      tensor.allocations.push_back({first, columns, pc});
      tensor.bases.push_back(first);
      note_memory(cta, pc);
      check_pair_bases(cta, peer, pc);
      if (!tensor.cells) tensor.cells = std::make_shared<TmemCells>();
      for (auto& lane : tensor.cells->at) std::fill_n(lane + first, columns, kPoison);
      shared_write(cta, place.offset, 4, generic_actor(pc, kWhat));
      std::memcpy(cta.shared + place.offset, &first, 4);
      return range;
    });
    if (base != kNoRoom) break;
    wait_until(Wait::Kind::kTmemAlloc, pc, columns, 0,
               [&] { return free_range(tensor, columns) != kNoRoom; });
  }
  // PTX: 9.7.16, issue granularity: both CTAs of a pair perform it together, so that both have
  // their columns when the first one goes on.
  meet_pair(peer, [](const CtaTensor& of) { return of.bases.size(); }, number, pc);
  // Columns come with whatever their last user released at its dealloc: reuse is no race.
  if (tensor.freed) acquire_from(*tensor.freed);
}

// PTX: tcgen05.dealloc.cta_group::{1,2}.sync.aligned.b32 taddr, nCols (9.7.16): address and count
// of one allocation; required before the CTA exits.
// Counts as a write of all columns: every use has to be complete and known before.
void tcgen05_dealloc(uint32_t group, uint32_t tmem, uint32_t columns) {
  const Pc pc = KB_EMU_PC;
  constexpr const char* kWhat = "tcgen05.dealloc";
  interleave();
  Cta& cta = *self().cta;
  CtaTensor& tensor = cta.tensor;
  const Cta* peer = tensor_group(group, pc, kWhat);
  const uint64_t number = uniform_collective(kWhat, uint64_t{tmem} << 32 | columns, pc,
                                             [&] { return ++tensor.deallocs; });
  meet_pair(peer, &CtaTensor::deallocs, number, pc);
  uniform_collective(kWhat, tmem, pc, [&] {
    const auto found = std::find_if(
        tensor.allocations.begin(), tensor.allocations.end(),
        [&](const TmemAllocation& each) { return each.base == tmem && each.columns == columns; });
    if (found == tensor.allocations.end()) {
      const auto same = std::find_if(tensor.allocations.begin(), tensor.allocations.end(),
                                     [&](const TmemAllocation& each) { return each.base == tmem; });
      const std::string there =
          same == tensor.allocations.end()
              ? ", which no allocation is"
              : "; the allocation there is of " + std::to_string(same->columns);
      fail({.kind = Class::kTmemAllocation,
            .pc = pc,
            .tmem_column = tmem & 0xffff,
            .text = std::string(kWhat) + " of " + std::to_string(columns) + " columns at address " +
                    std::to_string(tmem) + there});
    }
    // Every earlier use has to be complete, and known to be.
    if (checking()) {
      Knowledge knows = self().knows;
      knows.join(lane_fences(self()).done);
      Actor actor = generic_actor(pc, kWhat);
      actor.knows = &knows;
      cta.tmem_shadow->write(tmem_cell(tmem, 0), columns * kTmemSlabs, actor);
    }
    if (!tensor.freed) tensor.freed = std::make_shared<Knowledge>();
    release_to(*tensor.freed);
    tensor.allocations.erase(found);
    return uint64_t{0};
  });
}

// PTX: tcgen05.relinquish_alloc_permit.cta_group::{1,2}.sync.aligned (9.7.16).
// Later allocations of the CTA are wrong; that other CTAs may then allocate is not modelled.
void tcgen05_relinquish_alloc_permit(uint32_t group) {
  const Pc pc = KB_EMU_PC;
  constexpr const char* kWhat = "tcgen05.relinquish_alloc_permit";
  interleave();
  tensor_group(group, pc, kWhat);
  warp_collective(kWhat, pc, [pc] { self().cta->tensor.relinquished = pc; });
}

// What tcgen05.fence and waits have ordered for one lane.
LaneFences& lane_fences(const Thread& thread) {
  std::shared_ptr<LaneFences>& fences = thread.warp->tensor.fences;
  if (!fences) {
    fences =
        std::shared_ptr<LaneFences>(new LaneFences[kWarpSize], std::default_delete<LaneFences[]>());
  }
  return fences.get()[thread.lane];
}

// PTX: 9.7.16.6: tcgen05 instructions are ordered with other threads' only by tcgen05.fence around
// a synchronization, or by what implies it (commit before, wait::ld and wait::st for the own warp).
// Knows only what was known at the last fence::after_thread_sync, what the warp has waited for, and
// its own earlier operations: a barrier without the fence orders nothing here.
// Assumption: a fence orders for the executing lane; the instruction that a warp issues together
// takes the fences of the lane that runs it.
void order_by_fences(AsyncActor& actor) {
  if (!checking()) return;
  const Thread& thread = self();
  const LaneFences& fences = lane_fences(thread);
  Clock& seen = actor.knows.seen;
  if (runs_ptx()) actor.knows.unfenced.join(seen);
  Clock ordered;
  ordered.at.resize(seen.at.size());
  // Published generic writes stay as they are: proxies and tcgen05 fences are independent of each
  // other.
  ordered.join(fences.fenced.seen);
  ordered.join(fences.done.seen);
  // Its own earlier accesses, and the operations before it in its pipe.
  for (const uint32_t own : {thread.component, actor.actor.component}) {
    ordered.at[own] = seen.at[own];
  }
  seen = std::move(ordered);
}

// PTX: tcgen05.fence::before_thread_sync (9.7.16): orders prior asynchronous tcgen05 operations
// before the thread's later synchronization.
// What the warp has waited for is released with whatever the thread does next.
// Assumption: only operations that a wait has completed are meant for other threads; those in
// flight need their commit.
void tcgen05_fence_before_thread_sync() {
  if (checking()) acquire_from(lane_fences(self()).done);
}

// PTX: tcgen05.fence::after_thread_sync (9.7.16).
// Later tcgen05 operations are ordered after what the thread knows now.
void tcgen05_fence_after_thread_sync() {
  if (checking()) lane_fences(self()).fenced = self().knows;
}

// PTX: tensor memory is not initialized at a CTA's start.
// The cells stay: they are large, and allocating poisons what is used.
void start_tensor(Cta& cta) {
  std::shared_ptr<TmemCells> cells = std::move(cta.tensor.cells);
  cta.tensor = {};
  cta.tensor.cells = std::move(cells);
}

// PTX: 9.7.16: all allocations have to be freed before the kernel exits.
// Tensor memory is not freed by the exit of its CTA.
void check_tensor_at_exit(Cta& cta) {
  for (const TmemAllocation& each : cta.tensor.allocations) {
    report(
        {.kind = Class::kTmemAllocation,
         .pc = each.pc,
         .tmem_column = each.base,
         .text = "a CTA exits without tcgen05.dealloc of " + columns_of(each.base, each.columns)});
  }
  if (cta.tensor.launch_requests > 0) {
    report(
        {.kind = Class::kExit,
         .pc = cta.tensor.launch_request_pc,
         .text = "a CTA exits before the answer to its request for another cluster has arrived"});
  }
}

}  // namespace kb::emu
