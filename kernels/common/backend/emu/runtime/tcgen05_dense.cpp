// tcgen05.mma.kind::f16, ::tf32 and ::f8f6f4, PTX ISA 9.1, 9.7.16.10: operands, checks, execution.
#include <cstring>

#include "api_tensor.hpp"
#include "mma_dense.hpp"
#include "operand_tile.hpp"
#include "tcgen05.hpp"

namespace kb::emu {

namespace {

constexpr const char* kWhat = "tcgen05.mma";
constexpr uint32_t kColumnsOfA = kMmaRowBytes / 4;  // in tensor memory

uint32_t field(uint32_t word, uint32_t low, uint32_t count) {
  return word >> low & ((1u << count) - 1);
}

struct Instruction {
  uint32_t rows;
  uint32_t columns;
  DenseType type_a;
  DenseType type_b;
  bool negate_a;
  bool negate_b;
  bool transposed_a;
  bool transposed_b;
};

// The type of a number in the instruction descriptor; false if the kind has none.
bool type_of(DenseKind kind, uint32_t number, DenseType& type) {
  if (kind == DenseKind::kTf32) {
    type = DenseType::kTf32;
    return number == 2;
  }
  const bool halves = kind == DenseKind::kF16;
  const DenseType both[] = {halves ? DenseType::kF16 : DenseType::kE4m3,
                            halves ? DenseType::kBf16 : DenseType::kE5m2};
  if (number > 1) return false;
  type = both[number];
  return true;
}

// PTX: 9.7.16.4.2, instruction descriptor of .kind::tf32, .kind::f16, .kind::f8f6f4 and .kind::i8.
// The fields of the instruction descriptor, and which values the kind has.
// Not modelled: f16 sums, elements of 4 and 6 bits, operands along M or N that are not of 16 bits.
Instruction take_apart(DenseKind kind, uint32_t word, Pc pc) {
  Instruction found{.rows = field(word, 24, 5) * 16,
                    .columns = field(word, 17, 6) * 8,
                    .type_a = {},
                    .type_b = {},
                    .negate_a = field(word, 13, 1) != 0,
                    .negate_b = field(word, 14, 1) != 0,
                    .transposed_a = field(word, 15, 1) != 0,
                    .transposed_b = field(word, 16, 1) != 0};
  const bool known = type_of(kind, field(word, 7, 3), found.type_a) &&
                     type_of(kind, field(word, 10, 3), found.type_b);
  std::string problem;
  if (field(word, 0, 2) != 0 || field(word, 3, 1) != 0 || field(word, 6, 1) != 0 ||
      field(word, 23, 1) != 0 || field(word, 29, 1) != 0) {
    problem = "reserved bits are set";
  } else if (field(word, 2, 1) != 0) {
    problem = "the emulator does not have the sparse form";
  } else if (field(word, 4, 2) != 1) {
    problem = "D is of type " + std::to_string(field(word, 4, 2)) + "; the emulator has f32 (1)";
  } else if (!known) {
    problem = "A and B of types " + std::to_string(field(word, 7, 3)) + " and " +
              std::to_string(field(word, 10, 3)) + " are not of this kind, or not in the emulator";
  } else if ((found.transposed_a || found.transposed_b) && kind != DenseKind::kF16) {
    problem = "the emulator has operands along M or N of 16 bits only";
  } else if (field(word, 30, 2) != 0) {
    problem = "the maximum shift is of the form .ws";
  } else if (found.rows != 64 && found.rows != kTmemLanes) {
    problem = "M = " + std::to_string(found.rows) + " is not of cta_group::1";
  } else if (const uint32_t step = found.rows == kTmemLanes ? 16 : 8;
             found.columns == 0 || found.columns > kMmaMaxColumns || found.columns % step != 0) {
    problem = "N = " + std::to_string(found.columns) + " is not a multiple of " +
              std::to_string(step) + " up to 256";
  }
  if (!problem.empty()) {
    fail({.kind = Class::kDescriptor,
          .pc = pc,
          .text = "instruction descriptor of tcgen05.mma: " + problem});
  }
  return found;
}

// PTX: 9.7.16.10: A in tensor memory: rows as those of D, elements of K in neighbouring columns.
struct DenseMultiply {
  Instruction instruction;
  bool a_in_tmem;
  uint32_t a_lane;
  uint32_t a_column;
  std::optional<OperandTile> a;
  OperandTile b;
  TmemAddress d;
  bool accumulate;
  Cta* cta;
  StaleCells stale_a = {};
  StaleCells stale_b = {};

  void execute() const {
    thread_local DenseTile tile;
    tile.rows = instruction.rows;
    tile.columns = instruction.columns;
    tile.accumulate = accumulate;
    tile.negate_a = instruction.negate_a;
    tile.negate_b = instruction.negate_b;
    tile.type_a = instruction.type_a;
    tile.type_b = instruction.type_b;
    TmemCells& cells = *cta->tensor.cells;
    if (a_in_tmem) {
      for (uint32_t m = 0; m < tile.rows; ++m) {
        std::memcpy(tile.a[m], &cells.at[dense_lane(tile.rows, m) + a_lane][a_column],
                    kMmaRowBytes);
      }
    } else {
      a->read(*cta, tile.rows, stale_a, tile.a[0]);
    }
    b.read(*cta, tile.columns, stale_b, tile.b[0]);
    mma_dense(tile, &cells.at[d.lane][d.column]);
  }
};

// Cells of tensor memory that rows of D or A take: `visit(first cell, cells)`.
template <typename Visit>
void each_slab(uint32_t rows, uint32_t column, uint32_t columns, uint32_t lane, Visit visit) {
  if (rows == kTmemLanes) return visit(tmem_cell(column, 0), columns * kTmemSlabs);
  for (uint32_t at = column; at < column + columns; ++at) {
    for (uint32_t slab = 0; slab < kTmemLanes; slab += 32) visit(tmem_cell(at, slab + lane), 1);
  }
}

// PTX: 9.7.16.10.5: with M = 64 and cta_group::1 rows 16 w … 16 w + 15 are in 16 lanes of warp w's.
// Assumption: then the lane is 0 or 16: the first or the other half of each warp's lanes.
void check_place(const Instruction& instruction, const TmemAddress& at, uint32_t columns, Cta& cta,
                 Pc pc, const char* what) {
  if (at.lane != 0 && (instruction.rows == kTmemLanes || at.lane != 16)) {
    fail({.kind = Class::kTmemBounds,
          .pc = pc,
          .tmem_column = at.column,
          .text = std::string(what) + " with M = " + std::to_string(instruction.rows) +
                  " starts at lane " + std::to_string(at.lane) +
                  (instruction.rows == kTmemLanes ? ": the lane is 0" : ": the lane is 0 or 16")});
  }
  tmem_columns(cta, at.column, columns, pc, what);
}

}  // namespace

// PTX: tcgen05.mma.cta_group::1.kind::{f16,tf32,f8f6f4} [d-tmem], {a-desc, [a-tmem]}, b-desc,
// idesc, enable-input-d (9.7.16.10): one thread, asynchronous, operands in shared memory through
// the async proxy. Not modelled: cta_group::2, .ws, sparsity, scale-input-d, disable-output-lane,
// .ashift. Assumption: operands are read when the product executes, and D is written then, all at
// once.
void tcgen05_mma_dense(DenseKind kind, uint32_t d, bool a_in_tmem, uint64_t a, uint64_t b,
                       uint32_t instruction, bool accumulate) {
  const Pc pc = KB_EMU_PC;
  interleave();
  Thread& thread = self();
  Cta& cta = *thread.cta;
  check_one_lane(mix(mix(mix(d, a), b), uint64_t{instruction} << 1 | accumulate), pc, kWhat);
  tensor_group(1, pc, kWhat);
  thread.warp->tensor.issuers |= 1u << thread.lane;
  const Instruction taken = take_apart(kind, instruction, pc);
  const TmemAddress at_a(static_cast<uint32_t>(a));
  DenseMultiply multiply{
      .instruction = taken,
      .a_in_tmem = a_in_tmem,
      .a_lane = at_a.lane,
      .a_column = at_a.column,
      .a = {},
      .b = OperandTile(b, OperandTile::User::kTcgen05, pc, "B", taken.transposed_b),
      .d = TmemAddress(d),
      .accumulate = accumulate,
      .cta = &cta};
  AsyncActor actor = tensor_actor(pc, kWhat);
  check_place(taken, multiply.d, taken.columns, cta, pc, "tcgen05.mma's accumulator");
  if (a_in_tmem) {
    check_place(taken, at_a, kColumnsOfA, cta, pc, "tcgen05.mma, as A,");
  } else {
    multiply.a.emplace(a, OperandTile::User::kTcgen05, pc, "A", taken.transposed_a);
    multiply.a->check(cta, 0, taken.rows, actor.get(), multiply.stale_a);
  }
  multiply.b.check(cta, 0, taken.columns, actor.get(), multiply.stale_b);
  if (checking()) {
    Shadow& shadow = *cta.tmem_shadow;
    if (a_in_tmem) {
      each_slab(taken.rows, at_a.column, kColumnsOfA, at_a.lane,
                [&](uint32_t first, uint32_t count) { shadow.read(first, count, actor.get()); });
    }
    each_slab(taken.rows, multiply.d.column, taken.columns, multiply.d.lane,
              [&](uint32_t first, uint32_t count) {
                if (accumulate) shadow.check_written(first, count, actor.get());
                shadow.write(first, count, actor.get());
              });
  }
  start(std::move(multiply));
}

}  // namespace kb::emu
