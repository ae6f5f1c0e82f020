// wgmma, PTX ISA 9.1, 9.7.15: four warps issue each operation together; operations execute in
// order, and hold the registers of their accumulators until a wait_group.
#include <algorithm>
#include <cstring>
#include <utility>

#include "api_tensor.hpp"
#include "operand_tile.hpp"
#include "runner.hpp"
#include "timing.hpp"
#include "wgmma_math.hpp"

namespace kb::emu {

namespace {

constexpr uint32_t kWarps = 4;
constexpr uint32_t kThreads = kWarps * kWarpSize;
constexpr uint32_t kFragments = 4;  // registers of A
constexpr uint32_t kAllWarps = (1u << kWarps) - 1;
constexpr uint32_t kWarpRows = kWgmmaRows / kWarps;

// PTX: 9.7.15: registers of D, and of A if it is there, may not be touched between the instruction
// and the wait_group that covers it.
// The registers of a warpgroup that the hardware has, as a matrix of 64 rows.
// While taken they hold a NaN pattern, so that an early read shows in the result.
struct Accumulators {
  float* registers[kThreads] = {};  // null: not taken, or given back
  uint32_t count = 0;               // elements per thread
  bool half = false;                // two of them in a register
  std::vector<float> matrix;
  Pc pc = nullptr;             // of the operation that took them
  uint64_t uses[kWarps] = {};  // operations up to the last one of each warp that uses it
  uint32_t columns() const { return 2 * count; }
};

// Row and column of a thread's accumulator register.
struct Element {
  uint32_t row;
  uint32_t column;
};

// PTX: 9.7.15, fragment of D (.f32): rows by warp and lane, columns in pairs, eight columns every
// four registers.
constexpr Element element_of(uint32_t thread, uint32_t reg) {
  const uint32_t lane = thread % kWarpSize;
  return {thread / kWarpSize * kWarpRows + lane / 4 + 8 * (reg / 2 % 2),
          8 * (reg / 4) + 2 * (lane % 4) + reg % 2};
}

struct Operation {
  WgmmaKind kind;
  uint32_t count;
  bool accumulate;
  bool a_in_registers;
  WgmmaTransposed transposed;
  uint64_t a_bits;
  uint64_t b_bits;
  Pc pc;
  std::shared_ptr<Accumulators> d;
  uint32_t arrived = 0;  // warps
  uint32_t fragments[kThreads][kFragments] = {};
  StaleCells stale_a;
  StaleCells stale_b;
};

// PTX: wgmma.commit_group: per warpgroup, kept for each warp here, as each executes it.
struct Group {
  uint64_t end;   // operations up to its last one
  Growing knows;  // after that
};

struct WarpState {
  uint64_t issued = 0;  // operations
  bool fenced = false;
  Growing knows;                   // of its operations
  uint32_t taken[kWarpSize] = {};  // of that, by its lanes
  std::deque<Group> groups;
};

}  // namespace

struct Warpgroup {
  Cta* cta = nullptr;
  WarpState warps[kWarps];
  std::deque<Operation> operations;  // not executed
  uint64_t executed = 0;
  std::vector<std::shared_ptr<Accumulators>> accumulators;
  struct Copy {
    uint32_t* to;
    const uint32_t* from;
  };
  std::vector<Copy> copies[kThreads];  // of registers that are taken, in order
  // What each lane passes to the operation in progress in its warp.
  float* d[kThreads] = {};
  const uint32_t* a[kThreads] = {};

  void execute(uint64_t end) {
    while (executed < end) {
      run(operations.front());
      operations.pop_front();
      ++executed;
    }
    cta->wake(Wait::Kind::kWgmma);
  }

 private:
  void run(const Operation& operation) const;
};

namespace {

// PTX: 9.7.15, fragment of A in registers: four registers of four 8-bit or two 16-bit elements.
// A's rows from the threads' registers: of 8 or 16 bits, low ones first.
void gather_fragments(const Operation& operation, WgmmaTile& tile) {
  const uint32_t bytes = element_bytes(types_of(operation.kind).a);
  const uint32_t per_register = 4 / bytes;
  for (uint32_t thread = 0; thread < kThreads; ++thread) {
    const uint32_t lane = thread % kWarpSize;
    for (uint32_t i = 0; i < kFragments * per_register; ++i) {
      const uint32_t row = thread / kWarpSize * kWarpRows + lane / 4 + 8 * (i / per_register % 2);
      const uint32_t k = per_register * (lane % 4) + i % per_register +
                         4 * per_register * (i / (2 * per_register));
      const uint32_t value =
          operation.fragments[thread][i / per_register] >> 8 * bytes * (i % per_register);
      std::memcpy(&tile.a[row][k * bytes], &value, bytes);
    }
  }
}

// PTX: 9.7.15: four contiguous warps, the first of which has an index that is a multiple of four.
Warpgroup& warpgroup_of(const Thread& thread, Pc pc, const char* what) {
  Cta& cta = *thread.cta;
  const uint32_t first = thread.warp->index / kWarps * kWarps;
  if (first + kWarps > cta.warps.size() || cta.warps[first + kWarps - 1].count != kWarpSize) {
    fail({.kind = Class::kDivergence,
          .pc = pc,
          .text = std::string(what) + " is executed by a warpgroup: warp " +
                  std::to_string(thread.warp->index) + " is not in one of four whole warps"});
  }
  std::shared_ptr<Warpgroup>& group = cta.warps[first].tensor.warpgroup;
  if (!group) {
    group = std::make_shared<Warpgroup>();
    group->cta = &cta;
  }
  return *group;
}

// PTX: .sync.aligned over the warpgroup: the same instruction, the same descriptors, else
// undefined.
[[noreturn]] void disagree(const Operation& operation, Pc pc) {
  fail({.kind = Class::kDivergence,
        .pc = pc,
        .other_pc = operation.pc,
        .text = "warps of one warpgroup execute wgmma.mma_async with different operands"});
}

// PTX: several wgmma on the same accumulator and shape need no wgmma.fence between.
// The accumulators that a warp's operation uses: those that an earlier operation of the warpgroup
// took and no wait has given back, or new ones.
// Assumption: registers are told apart by where the compiler keeps the array: a kernel's array is
// its accumulator.
std::shared_ptr<Accumulators> accumulators_of(Warpgroup& group, uint32_t first,
                                              const Operation& operation) {
  for (const std::shared_ptr<Accumulators>& each : group.accumulators) {
    if (each->registers[first] == group.d[first]) return each;
  }
  auto fresh = std::make_shared<Accumulators>();
  fresh->count = operation.count;
  fresh->pc = operation.pc;
  fresh->half = types_of(operation.kind).sums == WgmmaSums::kF16;
  fresh->matrix.resize(size_t{kWgmmaRows} * fresh->columns());
  group.accumulators.push_back(fresh);
  return fresh;
}

using Half __attribute__((may_alias)) = uint16_t;
Half* halves_of(float* registers) {
  return reinterpret_cast<Half*>(registers);
}

// Takes the registers of the warp whose first thread is `first`.
void take_registers(const Warpgroup& group, Accumulators& d, uint32_t first) {
  for (uint32_t thread = first; thread < first + kWarpSize; ++thread) {
    d.registers[thread] = group.d[thread];
    for (uint32_t reg = 0; reg < d.count; ++reg) {
      const Element at = element_of(thread, reg);
      d.matrix[at.row * d.columns() + at.column] =
          d.half ? f32_of_f16(halves_of(group.d[thread])[reg]) : group.d[thread][reg];
    }
    const size_t bytes = d.count * (d.half ? sizeof(uint16_t) : sizeof(float));
    std::memset(group.d[thread], 0xff, bytes);
  }
}

constexpr uint32_t kTaken = ~0u;  // what a register holds meanwhile

void give_back(Warpgroup& group, Accumulators& d, uint32_t first) {
  for (uint32_t thread = first; thread < first + kWarpSize; ++thread) {
    for (uint32_t reg = 0; reg < d.count; ++reg) {
      const Element at = element_of(thread, reg);
      const float value = d.matrix[at.row * d.columns() + at.column];
      if (d.half) {
        halves_of(d.registers[thread])[reg] = f16_bits(value);
      } else {
        d.registers[thread][reg] = value;
      }
    }
    d.registers[thread] = nullptr;
    for (const Warpgroup::Copy& each : group.copies[thread]) {
      if (*each.to == kTaken) *each.to = *each.from;
    }
    std::erase_if(group.copies[thread],
                  [](const Warpgroup::Copy& each) { return *each.from != kTaken; });
  }
}

OperandTile tile_a(const Operation& operation) {
  return OperandTile(operation.a_bits, OperandTile::User::kWgmma, operation.pc, "A",
                     operation.transposed.a);
}
OperandTile tile_b(const Operation& operation) {
  return OperandTile(operation.b_bits, OperandTile::User::kWgmma, operation.pc, "B",
                     operation.transposed.b);
}

// PTX: A and B in shared memory are read through the async proxy.
// Each warp reads its rows of A and all of B.
// Assumption: a warp's rows of A are read on its behalf, B on behalf of all four: so a write by a
// warp that has not waited is found even if another one has.
// The operation knows what its issuer does, and itself: it looks with the issuer's clock.
void check_operands(Warpgroup& group, uint32_t warp, Operation& operation, Pc pc) {
  constexpr const char* kWhat = "wgmma.mma_async";
  Thread& thread = self();
  Actor actor;
  actor.pc = pc;
  actor.what = kWhat;
  uint32_t before = 0;
  if (checking()) {
    actor = generic_actor(thread, pc, kWhat);
    actor.component = pipe_component(*thread.warp, *thread.cta, Pipe::kTensor);
    actor.epoch = ++thread.warp->pipe_epoch[static_cast<uint32_t>(Pipe::kTensor)];
    actor.async = actor.tensor = true;
    before = std::exchange(thread.knows.seen.at[actor.component], actor.epoch);
  }
  if (!operation.a_in_registers) {
    tile_a(operation).check(*group.cta, warp * kWarpRows, (warp + 1) * kWarpRows, actor,
                            operation.stale_a);
  }
  tile_b(operation).check(*group.cta, 0, 2 * operation.count, actor, operation.stale_b);
  if (!checking()) return;
  group.warps[warp].knows.join(thread.knows);
  // The issuer does not know that it has happened, nor is what comes next ordered before it.
  thread.knows.seen.at[actor.component] = before;
  ++thread.knows.seen.at[thread.component];
}

// PTX: wgmma.mma_async is asynchronous; its operations become complete in order, with the group
// that they belong to.
// One warp has arrived at its next operation.
// Not modelled: that wgmma.fence is needed again after registers of A or D were written; only the
// first one of a warp is asked for.
void issue(Warpgroup& group, uint32_t warp, const Operation& mine) {
  WarpState& state = group.warps[warp];
  const uint32_t first = warp * kWarpSize;
  // Warps need not come at the same time: the first makes the operation, the last starts it.
  const uint64_t index = state.issued++ - group.executed;
  if (!state.fenced) {
    state.fenced = true;
    report({.kind = Class::kOrder,
            .pc = mine.pc,
            .text = "a warp's first wgmma.mma_async comes without wgmma.fence before it"});
  }
  if (index == group.operations.size()) {
    group.operations.push_back(mine);
    group.operations.back().d = accumulators_of(group, first, mine);
  }
  Operation& operation = group.operations[index];
  Accumulators& d = *operation.d;
  if (operation.kind != mine.kind || operation.count != mine.count ||
      operation.accumulate != mine.accumulate || operation.a_bits != mine.a_bits ||
      operation.b_bits != mine.b_bits || operation.a_in_registers != mine.a_in_registers ||
      operation.transposed != mine.transposed || d.count != mine.count) {
    disagree(operation, mine.pc);
  }
  if (d.registers[first] == nullptr) {
    take_registers(group, d, first);
  } else if (!std::equal(&group.d[first], &group.d[first + kWarpSize], &d.registers[first])) {
    disagree(operation, mine.pc);
  }
  if (mine.a_in_registers) {
    for (uint32_t thread = first; thread < first + kWarpSize; ++thread) {
      std::copy_n(group.a[thread], kFragments, operation.fragments[thread]);
    }
  }
  check_operands(group, warp, operation, mine.pc);
  operation.arrived |= 1u << warp;
  d.uses[warp] = state.issued;
  // PTX: the instruction executes for the warpgroup as a whole.
  if (operation.arrived != kAllWarps) return;
  if (!checking()) {
    group.execute(state.issued);
    return;
  }
  // Operations become complete in order: all are in the first warp's pipe.
  Warp& pipe = group.cta->warps[self().warp->index / kWarps * kWarps];
  current_runner->submit_in_order(
      pipe, Pipe::kTensor, mine.pc,
      [kept = pipe.tensor.warpgroup, end = state.issued] { kept->execute(end); });
}

}  // namespace

void Warpgroup::run(const Operation& operation) const {
  if (timing) return;  // values change no schedule
  thread_local WgmmaTile tile;
  tile.columns = 2 * operation.count;
  tile.accumulate = operation.accumulate;
  if (operation.a_in_registers) {
    gather_fragments(operation, tile);
  } else {
    tile_a(operation).read(*cta, kWgmmaRows, operation.stale_a, tile.a[0]);
  }
  tile_b(operation).read(*cta, tile.columns, operation.stale_b, tile.b[0]);
  float* d = operation.d->matrix.data();
  if (operation.kind > WgmmaKind::kBf16) {
    wgmma_any(types_of(operation.kind), tile, d);
  } else if (operation.kind == WgmmaKind::kE4m3) {
    wgmma_e4m3(tile, d);
  } else if (operation.kind == WgmmaKind::kBf16) {
    wgmma_bf16(tile, d);
  } else if (options().mma_rounding != 0) {
    wgmma_f16_modelled(tile, d);
  } else {
    wgmma_f16(tile, d);
  }
}

// PTX: wgmma.fence.sync.aligned (9.7.15): before the first wgmma.mma_async, and whenever registers
// of D or A were modified.
// Orders registers only; writes to shared memory need fence.proxy.async.
void wgmma_fence() {
  const Pc pc = KB_EMU_PC;
  constexpr const char* kWhat = "wgmma.fence";
  interleave();
  const Thread& thread = self();
  Warpgroup& group = warpgroup_of(thread, pc, kWhat);
  warp_collective(kWhat, pc, [] {});
  // Kept for good: registers that a kernel writes later are not watched.
  group.warps[thread.warp->index % kWarps].fenced = true;
}

// PTX: wgmma.mma_async.sync.aligned.m64nN of every dense type but b1 (9.7.15).
// Not modelled: sparsity, negated operands; of all but e4m3 and f16 into f32 the hardware's own
// rounding.
void wgmma_mma_async(WgmmaKind kind, float* d, uint32_t count, const uint32_t* a, uint64_t a_tile,
                     uint64_t b_tile, bool accumulate, WgmmaTransposed transposed) {
  const Pc pc = KB_EMU_PC;
  constexpr const char* kWhat = "wgmma.mma_async";
  interleave();
  timed(Op::kWarpgroupMma, pc, 2 * count, a != nullptr, accumulate);
  const Thread& thread = self();
  Warpgroup& group = warpgroup_of(thread, pc, kWhat);
  const uint32_t warp = thread.warp->index % kWarps;
  const uint32_t in_group = warp * kWarpSize + thread.lane;
  group.d[in_group] = d;
  group.a[in_group] = a;
  const uint64_t operands = (a_tile * 0x9e3779b97f4a7c15u ^ b_tile) * 2 + accumulate;
  collective(kWhat, ~0u, operands, pc, [&](Collective& all) {
    const Operation mine{.kind = kind,
                         .count = count,
                         .accumulate = accumulate,
                         .a_in_registers = a != nullptr,
                         .transposed = transposed,
                         .a_bits = a_tile,
                         .b_bits = b_tile,
                         .pc = pc,
                         .d = nullptr,
                         .stale_a = {},
                         .stale_b = {}};
    for (uint32_t lane = 1; lane < kWarpSize; ++lane) {
      if (all.value[lane] != all.value[0]) disagree(mine, pc);
    }
    issue(group, warp, mine);
  });
}

// PTX: wgmma.commit_group.sync.aligned (9.7.15): the operations since the last one; none makes an
// empty group.
void wgmma_commit_group() {
  const Pc pc = KB_EMU_PC;
  constexpr const char* kWhat = "wgmma.commit_group";
  interleave();
  timed(Op::kWarpgroupCommit, pc);
  const Thread& thread = self();
  Warpgroup& group = warpgroup_of(thread, pc, kWhat);
  WarpState& state = group.warps[thread.warp->index % kWarps];
  warp_collective(kWhat, pc, [&state] { state.groups.push_back({state.issued, state.knows}); });
}

// PTX: 9.7.15: a wgmma-group is the warpgroup's, of operations that the executing warp has begun.
// Assumption: kGroupsOfWarpgroups. An operation is the warpgroup's, and so what its other warps
// have read is over as well.
void know_whole_group(const Warpgroup& group, uint32_t warp, uint64_t end) {
  if (!checking()) return;
  Thread& thread = self();
  const uint32_t first = thread.warp->index / kWarps * kWarps;
  std::vector<uint32_t>& known = thread.knows.grouped.at;
  known.resize(thread.knows.seen.at.size());
  for (uint32_t w = 0; w < kWarps; ++w) {
    if (w == warp) continue;
    uint32_t& epoch = known[pipe_component(group.cta->warps[first + w], *group.cta, Pipe::kTensor)];
    epoch = std::max(epoch, static_cast<uint32_t>(end));
  }
}

// PTX: wgmma.wait_group.sync.aligned N (9.7.15): all groups but the newest N are complete, their
// registers may be used.
// Other warpgroups learn of it by a barrier, as after any access: what was read of shared memory
// may then be overwritten.
void wgmma_wait_group(uint32_t pending) {
  const Pc pc = KB_EMU_PC;
  constexpr const char* kWhat = "wgmma.wait_group";
  interleave();
  timed(Op::kWarpgroupWait, pc, pending);
  const Thread& thread = self();
  Warpgroup& group = warpgroup_of(thread, pc, kWhat);
  const uint32_t warp = thread.warp->index % kWarps;
  std::deque<Group>& groups = group.warps[warp].groups;
  warp_collective(kWhat, pc, [] {});
  // Nothing to wait for; wait_group with few groups is legal.
  if (groups.size() <= pending) return;
  const size_t newest = groups.size() - 1 - pending;
  const uint64_t end = groups[newest].end;
  wait_until_woken(Wait::Kind::kWgmma, pc, warp, pending,
                   [&group, end] { return group.executed >= end; });
  if (checking()) groups[newest].knows.hand_to(self().knows, group.warps[warp].taken[thread.lane]);
  know_whole_group(group, warp, end);
  // The last lane tidies up: the others have what they need.
  warp_collective(kWhat, pc, [&] {
    for (const std::shared_ptr<Accumulators>& each : group.accumulators) {
      const uint32_t first = warp * kWarpSize;
      if (each->uses[warp] <= end && each->registers[first] != nullptr)
        give_back(group, *each, first);
    }
    std::erase_if(group.accumulators, [](const std::shared_ptr<Accumulators>& each) {
      return each.use_count() == 1 &&
             std::all_of(std::begin(each->registers), std::end(each->registers),
                         [](const float* registers) { return registers == nullptr; });
    });
    groups.erase(groups.begin(), groups.begin() + static_cast<ptrdiff_t>(newest) + 1);
  });
}

// PTX: 9.7.15: D may not be accessed before the wait. nvcc moves accumulators between registers all
// the same, at the edges of loops, and ptxas gives both one register: the value follows the copy.
// What reads the copy before the wait has a NaN, as ever.
void wgmma_copied(uint32_t* to, const uint32_t* from) {
  const Thread& thread = self();
  const uint32_t first = thread.warp->index / kWarps * kWarps;
  const std::shared_ptr<Warpgroup>& group = thread.cta->warps[first].tensor.warpgroup;
  if (!group || group->accumulators.empty()) return;
  group->copies[(thread.warp->index - first) * kWarpSize + thread.lane].push_back({to, from});
}

// PTX: 9.7.15, wgmma.wait_group: registers of D are undefined until a wait_group covers the
// operation. Where none ever does, whatever was made of them was read too early.
void check_wgmma_at_exit(Cta& cta) {
  if (!checking()) return;
  for (const Warp& warp : cta.warps) {
    if (!warp.tensor.warpgroup) continue;
    for (const std::shared_ptr<Accumulators>& each : warp.tensor.warpgroup->accumulators) {
      const bool taken = std::any_of(std::begin(each->registers), std::end(each->registers),
                                     [](const float* registers) { return registers != nullptr; });
      if (!taken) continue;
      report({.kind = Class::kExit,
              .pc = each->pc,
              .text = "a CTA exits although no wgmma.wait_group covers its wgmma.mma_async: the "
                      "accumulators are undefined until then"});
    }
  }
}

}  // namespace kb::emu
