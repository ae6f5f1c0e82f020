// tcgen05.mma.kind::f16, ::tf32, ::f8f6f4, ::i8 and ::mxf8f6f4, PTX ISA 9.1, 9.7.16.10: operands,
// checks, execution.
#include <cstring>

#include "api_tensor.hpp"
#include "dense_instruction.hpp"
#include "operand_tile.hpp"
#include "tcgen05.hpp"
#include "tcgen05_scales.hpp"
#include "timing.hpp"

namespace kb::emu {

namespace {

constexpr const char* kWhat = "tcgen05.mma";
constexpr uint32_t kColumnsOfA = kMmaRowBytes / 4;  // in tensor memory

// PTX: 9.7.16.10: A in tensor memory: rows as those of D, elements of K in neighbouring columns.
// Of a pair each CTA has half of A's rows, its rows of D, and half of B's rows.
struct DenseMultiply {
  DenseInstruction instruction;
  bool a_in_tmem;
  uint32_t a_lane;
  uint32_t a_column;
  std::optional<OperandTile> a;
  OperandTile b;
  TmemAddress d;
  bool accumulate;
  std::optional<ScaleColumns> scales_a;
  std::optional<ScaleColumns> scales_b;
  Pc pc;
  Cta* ctas[2] = {};  // the even one first
  uint32_t count = 0;
  StaleCells stale_a[2] = {};
  StaleCells stale_b[2] = {};

  uint32_t rows() const { return instruction.rows / count; }
  uint32_t rows_of_b() const { return instruction.columns / count; }
  DenseLayout layout() const {
    if (rows() == kTmemLanes) return DenseLayout::kWhole;
    return count == 1 ? DenseLayout::kSpread : DenseLayout::kHalves;
  }

  void execute() const {
    thread_local DenseTile tile;
    tile.rows = rows();
    tile.columns = instruction.columns;
    tile.layout = layout();
    tile.accumulate = accumulate;
    tile.negate_a = instruction.negate_a;
    tile.negate_b = instruction.negate_b;
    tile.saturate = instruction.saturate;
    tile.scaled = scales_a.has_value();
    tile.type_a = instruction.type_a;
    tile.type_b = instruction.type_b;
    for (uint32_t i = 0; i < count; ++i) {
      b.read(*ctas[i], rows_of_b(), stale_b[i], tile.b[i * rows_of_b()]);
    }
    for (uint32_t i = 0; i < count; ++i) {
      TmemCells& cells = *ctas[i]->tensor.cells;
      read_a(i, cells, tile);
      if (tile.scaled) {
        if (checking()) {
          check_replicas(cells, *scales_a, kTmemLanes, pc);
          check_replicas(cells, *scales_b, tile.columns, pc);
        }
        read_scales(cells, *scales_a, kTmemLanes, tile.scales_a);
        read_scales(cells, *scales_b, tile.columns, tile.scales_b);
      }
      mma_dense(tile, &cells.at[d.lane][d.column]);
    }
  }

  void read_a(uint32_t i, const TmemCells& cells, DenseTile& tile) const {
    if (!a_in_tmem) return a->read(*ctas[i], tile.rows, stale_a[i], tile.a[0]);
    for (uint32_t m = 0; m < tile.rows; ++m) {
      std::memcpy(tile.a[m], &cells.at[dense_lane(tile.layout, m) + a_lane][a_column],
                  kMmaRowBytes);
    }
  }
};

// Cells of tensor memory that rows of D or A take: `visit(first cell, cells)`.
template <typename Visit>
void each_slab(DenseLayout layout, uint32_t column, uint32_t columns, uint32_t lane, Visit visit) {
  if (layout != DenseLayout::kSpread) return visit(tmem_cell(column, 0), columns * kTmemSlabs);
  for (uint32_t at = column; at < column + columns; ++at) {
    for (uint32_t slab = 0; slab < kTmemLanes; slab += 32) visit(tmem_cell(at, slab + lane), 1);
  }
}

// PTX: 9.7.16.10.5: with M = 64 and cta_group::1 rows 16 w … 16 w + 15 are in 16 lanes of warp w's.
// Assumption: then the lane is 0 or 16: the first or the other half of each warp's lanes.
void check_place(const DenseMultiply& multiply, const TmemAddress& at, uint32_t columns, Cta& cta,
                 const char* what) {
  const bool spread = multiply.layout() == DenseLayout::kSpread;
  if (at.lane != 0 && (!spread || at.lane != 16)) {
    fail({.kind = Class::kTmemBounds,
          .pc = multiply.pc,
          .tmem_column = at.column,
          .text = std::string(what) + " with M = " + std::to_string(multiply.instruction.rows) +
                  " starts at lane " + std::to_string(at.lane) +
                  (spread ? ": the lane is 0 or 16" : ": the lane is 0")});
  }
  tmem_columns(cta, at.column, columns, multiply.pc, what);
}

// PTX: 9.7.16.10, A in tensor memory. Not modelled: with M = 128 of a pair, where each row stands
// in two lanes, and elements of less than a byte.
void check_a_in_tmem(const DenseMultiply& multiply) {
  const char* problem = nullptr;
  if (multiply.layout() == DenseLayout::kHalves) problem = "M = 128 of cta_group::2";
  if (multiply.instruction.type_a >= DenseType::kE2m3) problem = "elements of 4 or 6 bits";
  if (problem == nullptr) return;
  fail({.kind = Class::kDescriptor,
        .pc = multiply.pc,
        .text = std::string("the emulator does not have A in tensor memory with ") + problem});
}

// What the product reads and writes in one of its CTAs.
void check_accesses(DenseMultiply& multiply, uint32_t i, const ScalePlaces* scales, Actor actor) {
  Cta& cta = *multiply.ctas[i];
  const DenseInstruction& taken = multiply.instruction;
  const DenseLayout layout = multiply.layout();
  const uint32_t columns = dense_columns(layout, taken.columns);
  check_alive(cta, multiply.pc, kWhat);
  check_place(multiply, multiply.d, columns, cta, "tcgen05.mma's accumulator");
  if (multiply.a_in_tmem) {
    const TmemAddress at_a(multiply.a_lane << 16 | multiply.a_column);
    check_place(multiply, at_a, kColumnsOfA, cta, "tcgen05.mma, as A,");
  } else {
    multiply.a->check(cta, 0, multiply.rows(), actor, multiply.stale_a[i]);
  }
  multiply.b.check(cta, 0, multiply.rows_of_b(), actor, multiply.stale_b[i]);
  if (scales != nullptr) check_scale_places(*scales, multiply.d.column, columns, cta, multiply.pc);
  if (!checking()) return;
  Shadow& shadow = *cta.tmem_shadow;
  const auto read = [&](uint32_t first, uint32_t count) { shadow.read(first, count, actor); };
  if (multiply.a_in_tmem) {
    each_slab(layout, multiply.a_column, kColumnsOfA, multiply.a_lane, read);
  }
  if (scales != nullptr) {
    read(tmem_cell(scales->a.column, 0), scale_columns(kTmemLanes) * kTmemSlabs);
    read(tmem_cell(scales->b.column, 0), scales->columns_of_b * kTmemSlabs);
  }
  each_slab(layout, multiply.d.column, columns, multiply.d.lane,
            [&](uint32_t first, uint32_t count) {
              if (multiply.accumulate) shadow.check_written(first, count, actor);
              shadow.write(first, count, actor);
            });
}

}  // namespace

// PTX: tcgen05.mma.cta_group::{1,2}.kind::{f16,tf32,f8f6f4,i8} [d-tmem], {a-desc, [a-tmem]},
// b-desc, idesc, enable-input-d, and .kind::mxf8f6f4.block_scale with [scale-A-tmem],
// [scale-B-tmem] (9.7.16.10): one thread, asynchronous, operands in shared memory through the async
// proxy. Not modelled: .ws, sparsity, scale-input-d, disable-output-lane, .ashift. Assumption:
// operands are read when the product executes, and D is written then, all at once. Of a pair the
// even CTA holds the first half of A's and of B's rows.
void tcgen05_mma_dense(DenseKind kind, uint32_t group, const DenseOperands& operands,
                       uint32_t instruction, bool accumulate) {
  const Pc pc = KB_EMU_PC;
  interleave();
  timed(Op::kDenseMma, pc, 0, 0, 0, 0, true);
  Thread& thread = self();
  Cta& cta = *thread.cta;
  check_one_lane(
      mix(mix(mix(operands.d, operands.a), operands.b), uint64_t{instruction} << 1 | accumulate),
      pc, kWhat);
  Cta* peer = tensor_group(group, pc, kWhat);
  thread.warp->tensor.issuers |= 1u << thread.lane;
  const DenseInstruction taken = dense_instruction(kind, instruction, group, pc);
  const TmemAddress at_a(static_cast<uint32_t>(operands.a));
  DenseMultiply multiply{
      .instruction = taken,
      .a_in_tmem = operands.a_in_tmem,
      .a_lane = at_a.lane,
      .a_column = at_a.column,
      .a = {},
      .b = OperandTile(operands.b, OperandTile::User::kTcgen05, pc, "B", taken.transposed_b),
      .d = TmemAddress(operands.d),
      .accumulate = accumulate,
      .scales_a = {},
      .scales_b = {},
      .pc = pc};
  if (peer == nullptr) {
    multiply.ctas[multiply.count++] = &cta;
  } else {
    // By rank, not by who issues: either CTA of a pair may be the one that does.
    multiply.ctas[cta.rank % 2] = &cta;
    multiply.ctas[peer->rank % 2] = peer;
    multiply.count = 2;
  }
  const ScalePlaces scales{TmemAddress(operands.scales_a), TmemAddress(operands.scales_b),
                           scale_columns(taken.columns)};
  const bool scaled = kind == DenseKind::kMxf8f6f4;
  if (scaled) {
    multiply.scales_a = ScaleColumns{scales.a.column, false, taken.scale_a, 1};
    multiply.scales_b = ScaleColumns{scales.b.column, true, taken.scale_b, 1};
  }
  if (operands.a_in_tmem) {
    check_a_in_tmem(multiply);
  } else {
    multiply.a.emplace(operands.a, OperandTile::User::kTcgen05, pc, "A", taken.transposed_a);
  }
  AsyncActor actor = tensor_actor(pc, kWhat);
  for (uint32_t i = 0; i < multiply.count; ++i) {
    check_accesses(multiply, i, scaled ? &scales : nullptr, actor.get());
  }
  start(pc, std::move(multiply));
}

}  // namespace kb::emu
