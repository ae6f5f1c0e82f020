// tcgen05.mma.kind::mxf4 and ::mxf4nvf4, PTX ISA 9.1, 9.7.16.10: operands, checks, execution.
#include <cstring>

#include "api_tensor.hpp"
#include "operand_tile.hpp"
#include "tcgen05.hpp"
#include "tcgen05_scales.hpp"
#include "timing.hpp"

namespace kb::emu {

namespace {

uint32_t field(uint32_t word, uint32_t low, uint32_t count) {
  return word >> low & ((1u << count) - 1);
}

// PTX: 9.7.16.4.2, instruction descriptor of .kind::mxf4 and .kind::mxf4nvf4.
// What the instruction descriptor says.
struct Instruction {
  uint32_t rows;
  uint32_t columns;
  bool negate_a;
  bool negate_b;
  bool ue8m0;
  uint32_t scale_a;  // scale factor ids: the first byte of a word
  uint32_t scale_b;
};

// PTX: 9.7.16.4.2; shapes by kind and cta_group: M 128 (and 256 for pairs), N a multiple of 8 (16
// for pairs) up to 256, K 64.
// The fields of the instruction descriptor, and which values the kind has.
// Stricter: M = 128 of cta_group::2 is in PTX; it is refused since its scale layout is not known
// well enough to be right.
// `scales`: of a row, 2 or 4.
Instruction take_apart(uint32_t word, uint32_t scales, uint32_t group, Pc pc) {
  const Instruction instruction{.rows = field(word, 27, 2) * 128,
                                .columns = field(word, 17, 6) * 8,
                                .negate_a = field(word, 13, 1) != 0,
                                .negate_b = field(word, 14, 1) != 0,
                                .ue8m0 = field(word, 23, 1) != 0,
                                .scale_a = field(word, 29, 2),
                                .scale_b = field(word, 4, 2)};
  std::string problem;
  if (field(word, 0, 2) != 0 || field(word, 3, 1) != 0 || field(word, 6, 1) != 0 ||
      field(word, 12, 1) != 0 || field(word, 24, 3) != 0) {
    problem = "reserved bits are set";
  } else if (field(word, 2, 1) != 0) {
    problem = "the sparse form is not of this kind";
  } else if (instruction.scale_a % scales != 0 || instruction.scale_b % scales != 0) {
    problem = scales == 4 ? "the scale factor ids are 0 with four scales a row"
                          : "the scale factor ids are 0 or 2 with two scales a row";
  } else if (scales == 2 && !instruction.ue8m0) {
    problem = "blocks of 32 elements have scales of type 1 (ue8m0)";
  } else if (field(word, 7, 3) != 1 || field(word, 10, 2) != 1) {
    problem = "A and B are of type 1 (e2m1), not " + std::to_string(field(word, 7, 3)) + " and " +
              std::to_string(field(word, 10, 2));
  } else if (field(word, 15, 2) != 0) {
    problem = "operands of 4 bits are not transposed";
  } else if (field(word, 31, 1) != 0) {
    problem = "K = 96 is not of sm_100a";
  } else if (instruction.rows != 128 && (group == 1 || instruction.rows != 256)) {
    problem = "M = " + std::to_string(instruction.rows) +
              " is not of cta_group::" + std::to_string(group);
  } else if (instruction.columns == 0 || instruction.columns > kMmaMaxColumns ||
             instruction.columns % (8 * group) != 0) {
    problem = "N = " + std::to_string(instruction.columns) + " is not a multiple of " +
              std::to_string(8 * group) + " up to 256";
  } else if (group == 2 && instruction.rows == 128) {
    problem =
        "M = 128 of cta_group::2: where its scale factors lie is not documented, so the "
        "emulator does not have it";
  }
  if (!problem.empty()) {
    fail({.kind = Class::kDescriptor,
          .pc = pc,
          .text = "instruction descriptor of tcgen05.mma: " + problem});
  }
  return instruction;
}

// PTX: D = A · B + D, or A · B where enable-input-d is false (9.7.16.10): fp32 accumulation, order
// and rounding not defined.
struct Multiply {
  Instruction instruction;
  OperandTile a;
  OperandTile b;
  ScaleColumns scales_a;
  ScaleColumns scales_b;
  uint32_t column;
  bool accumulate;
  Pc pc;
  Cta* ctas[2] = {};  // the even one first
  uint32_t count = 0;
  StaleCells stale_a[2] = {};
  StaleCells stale_b[2] = {};

  uint32_t rows_of_b() const { return instruction.columns / count; }

  void execute() const {
    thread_local MmaTile tile;
    // Operands are gathered now, when the product executes: whatever has changed since the issue is
    // in the result.
    tile.columns = instruction.columns;
    tile.accumulate = accumulate || broken(Fact::kAccumulateIgnored);
    tile.negate_a = instruction.negate_a;
    tile.negate_b = instruction.negate_b;
    tile.ue8m0 = instruction.ue8m0;
    read_b(tile);
    for (uint32_t i = 0; i < count; ++i) {
      TmemCells& cells = *ctas[i]->tensor.cells;
      if (checking()) {
        check_replicas(cells, scales_a, kTmemLanes, pc);
        check_replicas(cells, scales_b, instruction.columns, pc);
      }
      // A and the scales of A are the CTA's own half of M; B's scales stand in full in both CTAs.
      a.read(*ctas[i], kTmemLanes, stale_a[i], tile.a[0]);
      const bool exchanged = broken(Fact::kScalesExchanged);
      ScaleColumns of_a = scales_a;
      ScaleColumns of_b = scales_b;
      if (exchanged) std::swap(of_a.column, of_b.column);
      read_blocks(cells, of_a, kTmemLanes, tile.scales_a);
      read_blocks(cells, of_b, instruction.columns, tile.scales_b);
      // Powers of two from 2^-127 to 2^127 leave fp32; the model adds them as integers.
      if (options().mma_rounding != 0 || tile.ue8m0) {
        mma_modelled(tile, &cells.at[0][column]);
      } else {
        mma_fp32(tile, &cells.at[0][column]);
      }
    }
  }

  // A scale for each 16 elements: a scale of 32 is that of two blocks.
  static void read_blocks(const TmemCells& cells, const ScaleColumns& scales, uint32_t rows,
                          uint8_t (*out)[kMmaBlocks]) {
    uint8_t found[kMmaMaxColumns * kMmaBlocks];
    read_scales(cells, scales, rows, found);
    for (uint32_t row = 0; row < rows; ++row) {
      for (uint32_t block = 0; block < kMmaBlocks; ++block) {
        out[row][block] = found[row * scales.count + block * scales.count / kMmaBlocks];
      }
    }
  }

  // Each CTA of a pair holds half of B's rows, the even one the first half.
  // Assumption: of a pair the even CTA holds rows 0 … N / 2 - 1 of B, the odd one the rest; each
  // CTA's D has its own 128 rows of M and all N columns.
  void read_b(MmaTile& tile) const {
    const uint32_t rows = rows_of_b();
    for (uint32_t i = 0; i < count; ++i) b.read(*ctas[i], rows, stale_b[i], tile.b[i * rows]);
    if (count == 1 || !broken(Fact::kPairBInterleaved)) return;
    uint8_t halves[kMmaMaxColumns][kMmaRowBytes];
    std::memcpy(halves, tile.b, sizeof halves);
    for (uint32_t n = 0; n < instruction.columns; ++n) {
      std::memcpy(tile.b[n], halves[n / 2 + n % 2 * rows], kMmaRowBytes);
    }
  }
};

// Stricter: D starts at lane 0, the only place where 128 lanes fit.
void check_columns(const Multiply& multiply, Cta& cta, const TmemAddress& d,
                   const TmemAddress& scales_a, const TmemAddress& scales_b) {
  const uint32_t columns = multiply.instruction.columns;
  constexpr const char* kWhat = "tcgen05.mma's accumulator";
  if (d.lane != 0) {
    fail({.kind = Class::kTmemBounds,
          .pc = multiply.pc,
          .tmem_column = d.column,
          .text = std::string(kWhat) + " starts at lane " + std::to_string(d.lane) +
                  ": the lane is 0"});
  }
  tmem_columns(cta, d.column, columns, multiply.pc, kWhat);
  check_scale_places({scales_a, scales_b, scale_columns(columns)}, d.column, columns, cta,
                     multiply.pc);
}

}  // namespace

// PTX: tcgen05.mma.cta_group::{1,2}.kind::{mxf4,mxf4nvf4}.block_scale.scale_vec::{2X,4X} [d-tmem],
// a-desc, b-desc, idesc, [scale-A-tmem], [scale-B-tmem], enable-input-d (9.7.16.10): one thread,
// asynchronous, A and B through the async proxy.
// Checks descriptors, columns and all accesses, then starts the product; the accumulator is read
// only where it is added to.
// Not modelled: A in tensor memory, .ws, sparsity, collector buffers (a hint: it changes no
// result), the other kinds.
// Assumption: operands are read when the product executes, at any time until a commit says that it
// is done; D is written then, all at once.
void tcgen05_mma_fp4(uint32_t group, uint32_t scales, uint32_t d, uint64_t a, uint64_t b,
                     uint32_t instruction, uint32_t scales_a, uint32_t scales_b, bool accumulate) {
  const Pc pc = KB_EMU_PC;
  constexpr const char* kWhat = "tcgen05.mma";
  interleave();
  Thread& thread = self();
  Cta& cta = *thread.cta;
  check_one_lane(mix(mix(mix(mix(d, a), b), scales_a), uint64_t{scales_b} << 1 | accumulate), pc,
                 kWhat);
  Cta* peer = tensor_group(group, pc, kWhat);
  timed(Op::kMma, pc, 128 * group, (instruction >> 17 & 63) * 8, group, 0, true);
  thread.warp->tensor.issuers |= 1u << thread.lane;
  const TmemAddress at_d(d);
  const TmemAddress at_a(scales_a);
  const TmemAddress at_b(scales_b);
  const Instruction taken = take_apart(instruction, scales, group, pc);
  Multiply multiply{.instruction = taken,
                    .a = OperandTile(a, OperandTile::User::kTcgen05, pc, "A"),
                    .b = OperandTile(b, OperandTile::User::kTcgen05, pc, "B"),
                    .scales_a = {at_a.column, false, taken.scale_a, scales},
                    .scales_b = {at_b.column, true, taken.scale_b, scales},
                    .column = at_d.column,
                    .accumulate = accumulate,
                    .pc = pc};
  if (peer == nullptr) {
    multiply.ctas[multiply.count++] = &cta;
  } else {
    // By rank, not by who issues: either CTA of a pair may be the one that does.
    multiply.ctas[cta.rank % 2] = &cta;
    multiply.ctas[peer->rank % 2] = peer;
    multiply.count = 2;
  }
  AsyncActor actor = tensor_actor(pc, kWhat);
  const uint32_t columns = multiply.instruction.columns;
  for (uint32_t i = 0; i < multiply.count; ++i) {
    Cta& each = *multiply.ctas[i];
    check_alive(each, pc, kWhat);
    check_columns(multiply, each, at_d, at_a, at_b);
    multiply.a.check(each, 0, kTmemLanes, actor.get(), multiply.stale_a[i]);
    multiply.b.check(each, 0, multiply.rows_of_b(), actor.get(), multiply.stale_b[i]);
    if (checking()) {
      Shadow& shadow = *each.tmem_shadow;
      shadow.read(tmem_cell(at_a.column, 0), 4 * kTmemSlabs, actor.get());
      shadow.read(tmem_cell(at_b.column, 0), scale_columns(columns) * kTmemSlabs, actor.get());
      const uint32_t sums = columns * kTmemSlabs;
      // D is written in any case; read it is only with enable-input-d, as tensor memory that nobody
      // has written is no zero.
      if (accumulate) shadow.check_written(tmem_cell(at_d.column, 0), sums, actor.get());
      shadow.write(tmem_cell(at_d.column, 0), sums, actor.get());
    }
  }
  start(pc, std::move(multiply));
}

}  // namespace kb::emu
