// tcgen05.ld and tcgen05.st, PTX ISA 9.1, 9.7.16.8.
#include <algorithm>
#include <cstring>

#include "api_ptx.hpp"
#include "api_tensor.hpp"
#include "timing.hpp"
#include "tmem.hpp"

namespace kb::emu {

namespace {

// A load whose registers the warp may not use yet.
struct Load {
  uint32_t* out[kWarpSize];
  uint32_t count;
  std::vector<uint32_t> values;  // [lane][register], once it has been executed
  bool executed = false;
  uint32_t arrived = 0;  // lanes that have their values
  Event event;
  void deliver(uint32_t lane) {
    if ((arrived >> lane & 1) != 0) return;
    arrived |= 1u << lane;
    std::copy_n(&values[size_t{lane} * count], count, out[lane]);
  }
};

constexpr uint32_t kPoison = 0xffffffff;

}  // namespace

// PTX: 9.7.16.8: tcgen05.ld and st are asynchronous; tcgen05.wait::ld and wait::st are their only
// completion mechanism.
struct TmemTraffic {
  std::vector<std::shared_ptr<Load>> loads;
  uint32_t stores = 0;  // in flight
  Knowledge loaded;     // of every load and store so far
  Knowledge stored;
  uint32_t address[kWarpSize] = {};  // that each lane passes to the operation in progress
};

namespace {

// How an access is laid out: its shape, and the distance of 16x32bx2's halves.
struct Form {
  TmemShape shape;
  uint32_t split;
};

// Where a thread's register lies, relative to the address. Broken facts exchange the roles of bits.
struct Cell {
  uint32_t lane;
  uint32_t column;
};

// PTX: 9.7.16.8, .32x32b, .16x64b, .16x128b, .16x256b, .16x32bx2: which register of which thread
// holds which lane and column. The layouts of all shapes. Not modelled: .pack::16b, .unpack::16b
// and .red.
Cell cell_of(Form form, uint32_t thread, uint32_t reg) {
  switch (form.shape) {
    case TmemShape::k32x32b:
      if (broken(Fact::kLoad32x32LaneOrder)) return {thread % 16 * 2 + thread / 16, reg};
      return {thread, reg};
    case TmemShape::k16x64b:
      return {thread / 4 + 8 * (thread % 2), thread / 2 % 2 + 2 * reg};
    case TmemShape::k16x128b:
      return {thread / 4 + 8 * (reg % 2), thread % 4 + 4 * (reg / 2)};
    case TmemShape::k16x32bx2:
      return {thread % 16, reg + thread / 16 * form.split};
    case TmemShape::k16x256b:
      break;
  }
  // 16x256b: a quad of threads holds eight columns of a row; registers 0 and 1 are of the first
  // eight lanes, 2 and 3 of the other eight.
  const bool exchanged = broken(Fact::kLoad16x256Exchanged);
  const uint32_t low = exchanged ? reg / 2 % 2 : reg % 2;
  const uint32_t high = exchanged ? reg % 2 : reg / 2 % 2;
  return {thread / 4 + 8 * high, 2 * (thread % 4) + low + 8 * (reg / 4)};
}

struct Extent {
  uint32_t lanes;
  uint32_t columns;
};

// Lanes and columns that an access of so many registers covers, from its address on.
Extent extent_of(Form form, uint32_t registers) {
  if (form.shape == TmemShape::k32x32b) return {32, registers};
  if (form.shape == TmemShape::k16x32bx2) return {16, registers + form.split};
  return {16, registers * 2};
}

const std::shared_ptr<TmemTraffic>& traffic_of(Warp& warp) {
  if (!warp.tensor.traffic) warp.tensor.traffic = std::make_shared<TmemTraffic>();
  return warp.tensor.traffic;
}

struct Target {
  TmemCells* cells;
  uint32_t lane;
  uint32_t column;
};

// PTX: 9.7.16.8: warp w of a warpgroup reaches lanes 32 (w mod 4) … + 31; taddr's lane has to be
// aligned to that, or to 16 lanes within for the 16-lane shapes.
// Whether the warp's lanes agree on an address that this warp may access. For the last lane.
// Assumption: in translated PTX the bits of the lane that name a warp are those of the warp itself
// if the address has none there: kernels that run on B200 leave them out (DeepGEMM). It is formal.
// Assumption: an address of lane 128 and more is that of the odd CTA's own lanes minus 128, as the
// layouts of pairs count them.
Target check_access(const TmemTraffic& traffic, Form form, uint32_t registers, Pc pc,
                    const char* what) {
  const Thread& thread = self();
  const TmemAddress address(traffic.address[0]);
  for (uint32_t lane = 1; lane < kWarpSize; ++lane) {
    if (traffic.address[lane] == traffic.address[0]) continue;
    fail({.kind = Class::kDivergence,
          .pc = pc,
          .tmem_column = address.column,
          .text = std::string(what) + ": lane " + std::to_string(lane) +
                  " passes another address than lane 0"});
  }
  const auto [lanes, columns] = extent_of(form, registers);
  // The odd CTA of a pair may count its lanes from 128.
  const uint32_t given = address.lane & (kTmemLanes - 1);
  // By the warp's index in the CTA: %warpid is taken for that, as kernels do.
  const uint32_t slab = thread.warp->index % 4 * 32;
  const uint32_t first = slab + given % 32;
  const bool whole = given % 32 == 0 || (lanes == 16 && given % 32 == 16);
  if (first != given || !whole || address.lane >= 2 * kTmemLanes) {
    Finding finding{.kind = Class::kTmemBounds,
                    .pc = pc,
                    .tmem_column = address.column,
                    .text = std::string(what) + " by warp " + std::to_string(thread.warp->index) +
                            " starts at lane " + std::to_string(address.lane) +
                            ": this warp reaches lanes " + std::to_string(slab) + " … " +
                            std::to_string(slab + 31) + " only"};
    if (!whole || given >= 32 || !runs_ptx()) fail(std::move(finding));
    finding.formal = true;
    report(std::move(finding));
  }
  TmemCells& cells = tmem_columns(*thread.cta, address.column, columns, pc, what);
  return {&cells, first, address.column};
}

template <typename Access>
void each_column(const Target& target, Form form, uint32_t registers, Access access) {
  const Extent extent = extent_of(form, registers);
  for (uint32_t column = 0; column < extent.columns; ++column) {
    // Between the halves nothing is accessed.
    const bool halves = form.shape == TmemShape::k16x32bx2;
    if (halves && column >= registers && column < form.split) continue;
    access(tmem_cell(target.column + column, target.lane), extent.lanes / 16);
  }
}

// What one lane gets.
void read_cells(Form form, const Target& target, uint32_t lane, uint32_t count, uint32_t* out) {
  for (uint32_t reg = 0; reg < count; ++reg) {
    const Cell cell = cell_of(form, lane, reg);
    out[reg] = target.cells->at[target.lane + cell.lane][target.column + cell.column];
  }
}

// Once every lane is inside: checks the load and starts it.
// Assumption: PTX gives loads of a warp no order with its mma or cp in flight: they are in pipes of
// their own.
void start_load(TmemTraffic& traffic, const Collective& all, Form form, uint32_t count, Pc pc) {
  const Target target = check_access(traffic, form, count, pc, "tcgen05.ld");
  const auto out_of = [&all](uint32_t lane) {
    return reinterpret_cast<uint32_t*>(static_cast<uintptr_t>(all.value[lane]));
  };
  if (!checking()) {
    for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
      read_cells(form, target, lane, count, out_of(lane));
    }
    return;
  }
  AsyncActor actor = pipe_actor(Pipe::kTmemLoad, pc, "tcgen05.ld");
  order_by_fences(actor);
  Shadow& shadow = *self().cta->tmem_shadow;
  each_column(target, form, count,
              [&](uint32_t cell, uint32_t cells) { shadow.read(cell, cells, actor.get()); });
  traffic.loaded.join(actor.knows);
  auto load = std::make_shared<Load>();
  load->count = count;
  load->event = {actor.actor.component, actor.actor.epoch};
  load->values.resize(size_t{count} * kWarpSize);
  for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
    load->out[lane] = out_of(lane);
    // The registers belong to the load until the wait: reading them gives NaN, and writing them is
    // undone.
    std::fill_n(load->out[lane], count, kPoison);
  }
  // Without a wait an earlier load into these registers is still there; it is over, in order.
  std::erase_if(traffic.loads, [&](const auto& each) { return each->out[0] == load->out[0]; });
  traffic.loads.push_back(load);
  submit_in_order(Pipe::kTmemLoad, pc, [load = std::move(load), form, target] {
    for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
      read_cells(form, target, lane, load->count, &load->values[size_t{lane} * load->count]);
    }
    load->executed = true;
  });
}

// The running lane has waited for these operations: other threads will know of them behind its next
// fence::before_thread_sync.
void done_with(const Knowledge& operations) {
  lane_fences(self()).done.join(operations);
  if (!runs_ptx()) return;
  Clock& unfenced = self().knows.unfenced;
  unfenced.join(operations.seen);
  unfenced.join(operations.unfenced);
}

}  // namespace

// PTX: tcgen05.ld.sync.aligned.{32x32b,16x64b,16x128b,16x256b}.xN.b32, and .16x32bx2.xN.b32 with
// immHalfSplitoff (9.7.16.8).
// By the warp. Its registers hold a pattern until tcgen05.wait::ld.
// Register values before the wait are undefined: a NaN pattern shows up in any result that uses
// them.
void tcgen05_ld(TmemShape shape, uint32_t* out, uint32_t count, uint32_t tmem, uint32_t split) {
  const Pc pc = KB_EMU_PC;
  interleave();
  timed(Op::kTmemLoad, pc, count);
  Thread& thread = self();
  TmemTraffic& traffic = *traffic_of(*thread.warp);
  traffic.address[thread.lane] = tmem;
  collective("tcgen05.ld", ~0u, reinterpret_cast<uintptr_t>(out), pc,
             [&](Collective& all) { start_load(traffic, all, {shape, split}, count, pc); });
}

// PTX: tcgen05.wait::ld.sync.aligned (9.7.16): all prior tcgen05.ld of the executing thread are
// complete.
// Waits for the warp's loads and hands out their values.
void tcgen05_wait_ld() {
  const Pc pc = KB_EMU_PC;
  interleave();
  timed(Op::kTmemWait, pc);
  warp_collective("tcgen05.wait::ld", pc, [] {});
  if (!checking()) return;
  Warp& warp = *self().warp;
  TmemTraffic& traffic = *traffic_of(warp);
  wait_until(Wait::Kind::kTmemLoad, pc, 0, 0, [&warp] { return pipe_idle(warp, Pipe::kTmemLoad); });
  // The first lane here delivers to all: the others still sleep inside their wait.
  for (const std::shared_ptr<Load>& load : traffic.loads) {
    for (uint32_t lane = 0; lane < kWarpSize; ++lane) load->deliver(lane);
  }
  traffic.loads.clear();
  done_with(traffic.loaded);
}

// PTX: 9.7.16.6: a true dependence on a register of the load orders the register's value, and no
// access to memory.
// Waits for the load, which teaches the lane nothing; in translated PTX it would, if more counted:
// a register that has its value was read.
void tcgen05_arrived(const uint32_t* out) {
  if (!checking()) return;
  const Pc pc = KB_EMU_PC;
  Thread& thread = self();
  if (!thread.warp->tensor.traffic) return;
  for (const std::shared_ptr<Load>& each : thread.warp->tensor.traffic->loads) {
    if (each->out[thread.lane] != out) continue;
    const std::shared_ptr<Load> load = each;
    wait_until(Wait::Kind::kTmemLoad, pc, 0, 0, [&load] { return load->executed; });
    load->deliver(thread.lane);
    if (!runs_ptx()) return;
    Clock& unfenced = thread.knows.unfenced;
    unfenced.join(thread.knows.seen);
    uint32_t& epoch = unfenced.at[load->event.component];
    epoch = std::max(epoch, load->event.epoch);
    return;
  }
}

// PTX: tcgen05.st.sync.aligned, of the shapes of tcgen05.ld (9.7.16.8).
// By the warp; complete after tcgen05.wait::st.
void tcgen05_st(TmemShape shape, uint32_t tmem, const uint32_t* in, uint32_t count,
                uint32_t split) {
  const Form form{shape, split};
  const Pc pc = KB_EMU_PC;
  interleave();
  Thread& thread = self();
  timed(Op::kTmemStore, pc, count);
  const std::shared_ptr<TmemTraffic> traffic = traffic_of(*thread.warp);
  traffic->address[thread.lane] = tmem;
  collective("tcgen05.st", ~0u, reinterpret_cast<uintptr_t>(in), pc, [&](Collective& all) {
    const Target target = check_access(*traffic, form, count, pc, "tcgen05.st");
    std::vector<uint32_t> values(size_t{count} * kWarpSize);
    for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
      const auto* from = reinterpret_cast<const uint32_t*>(static_cast<uintptr_t>(all.value[lane]));
      std::copy_n(from, count, &values[size_t{lane} * count]);
    }
    // Unlike loads, stores of one warp are in no order: each is a copy of its own.
    AsyncActor actor = copy_actor(pc, "tcgen05.st");
    order_by_fences(actor);
    if (checking()) {
      Shadow& shadow = *thread.cta->tmem_shadow;
      each_column(target, form, count,
                  [&](uint32_t cell, uint32_t cells) { shadow.write(cell, cells, actor.get()); });
      traffic->stored.join(actor.knows);
    }
    ++traffic->stores;
    submit(pc, [traffic, form, target, count, values = std::move(values)] {
      for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
        for (uint32_t reg = 0; reg < count; ++reg) {
          const Cell cell = cell_of(form, lane, reg);
          target.cells->at[target.lane + cell.lane][target.column + cell.column] =
              values[size_t{lane} * count + reg];
        }
      }
      --traffic->stores;
    });
  });
}

// PTX: tcgen05.wait::st.sync.aligned (9.7.16).
// Waits for the warp's stores.
void tcgen05_wait_st() {
  const Pc pc = KB_EMU_PC;
  interleave();
  warp_collective("tcgen05.wait::st", pc, [] {});
  if (!checking()) return;
  TmemTraffic& traffic = *traffic_of(*self().warp);
  wait_until(Wait::Kind::kTmemLoad, pc, 0, 0, [&traffic] { return traffic.stores == 0; });
  done_with(traffic.stored);
}

}  // namespace kb::emu
