// The instruction descriptor of tcgen05.mma.kind::f16, ::tf32, ::f8f6f4, ::i8 and ::mxf8f6f4 (PTX
// ISA 9.1, 9.7.16.4.2).
#include "dense_instruction.hpp"

#include <string>

#include "finding.hpp"

namespace kb::emu {

namespace {

uint32_t field(uint32_t word, uint32_t low, uint32_t count) {
  return word >> low & ((1u << count) - 1);
}

// The type of a number in the instruction descriptor; false if the kind has none.
bool type_of(DenseKind kind, uint32_t number, DenseType& type) {
  if (kind == DenseKind::kTf32) {
    type = DenseType::kTf32;
    return number == 2;
  }
  if (kind == DenseKind::kF16) {
    type = number == 0 ? DenseType::kF16 : DenseType::kBf16;
    return number <= 1;
  }
  if (kind == DenseKind::kI8) {
    type = number == 0 ? DenseType::kU8 : DenseType::kS8;
    return number <= 1;
  }
  constexpr DenseType kNarrow[] = {DenseType::kE4m3, DenseType::kE5m2, DenseType::kE5m2,
                                   DenseType::kE2m3, DenseType::kE3m2, DenseType::kE2m1};
  if (number == 2 || number >= std::size(kNarrow)) return false;
  type = kNarrow[number];
  return true;
}

// PTX: 9.7.16.2.1, shapes by kind and cta_group.
std::string problem_of_shape(const DenseInstruction& found, DenseKind kind, uint32_t group) {
  const bool scaled = kind == DenseKind::kMxf8f6f4;
  const uint32_t whole = kTmemLanes * group;
  if (found.rows != whole && (scaled || found.rows != whole / 2)) {
    return "M = " + std::to_string(found.rows) + " is not of cta_group::" + std::to_string(group);
  }
  uint32_t step = group == 2 || (!scaled && found.rows == kTmemLanes) ? 16 : 8;
  if (kind == DenseKind::kI8) step = group == 2 ? 32 : found.columns > 24 ? 16 : step;
  if (found.columns == 0 || found.columns > kMmaMaxColumns || found.columns % step != 0) {
    return "N = " + std::to_string(found.columns) + " is not a multiple of " +
           std::to_string(step) + " up to 256";
  }
  return "";
}

// The bits that have to be zero, and those of which the emulator has one value only.
// Not modelled: f16 sums, sparse A, 8-bit operands along M or N.
std::string problem_of_fields(const DenseInstruction& found, bool known, DenseKind kind,
                              uint32_t word) {
  const bool scaled = kind == DenseKind::kMxf8f6f4;
  const uint32_t reserved =
      scaled ? field(word, 24, 3) | field(word, 31, 1) : field(word, 23, 1) | field(word, 29, 1);
  const bool whole = kind == DenseKind::kI8;
  const bool integral = whole ? (found.negate_a || found.negate_b) : field(word, 3, 1) != 0;
  if (field(word, 0, 2) != 0 || integral || field(word, 6, 1) != 0 || reserved != 0) {
    return "reserved bits are set";
  }
  if (field(word, 2, 1) != 0) return "the emulator does not have the sparse form";
  if (!scaled && field(word, 4, 2) != (whole ? 2 : 1)) {
    return "D is of type " + std::to_string(field(word, 4, 2)) + "; the emulator has " +
           (whole ? "s32 (2)" : "f32 (1)");
  }
  if (scaled && field(word, 23, 1) != 1) return "scales are of type 1 (ue8m0)";
  if (!known) {
    return "A and B of types " + std::to_string(field(word, 7, 3)) + " and " +
           std::to_string(field(word, 10, 3)) + " are not of this kind";
  }
  if ((found.transposed_a || found.transposed_b) && kind != DenseKind::kF16) {
    return "the emulator has operands along M or N of 16 bits only";
  }
  if (!scaled && field(word, 30, 2) != 0) return "the maximum shift is of the form .ws";
  return "";
}

}  // namespace

DenseInstruction dense_instruction(DenseKind kind, uint32_t word, uint32_t group, Pc pc) {
  const bool scaled = kind == DenseKind::kMxf8f6f4;
  DenseInstruction found{.rows = scaled ? field(word, 27, 2) * 128 : field(word, 24, 5) * 16,
                         .columns = field(word, 17, 6) * 8,
                         .type_a = {},
                         .type_b = {},
                         .negate_a = field(word, 13, 1) != 0,
                         .negate_b = field(word, 14, 1) != 0,
                         .transposed_a = field(word, 15, 1) != 0,
                         .transposed_b = field(word, 16, 1) != 0};
  found.saturate = kind == DenseKind::kI8 && field(word, 3, 1) != 0;
  if (scaled) {
    found.scale_a = field(word, 29, 2);
    found.scale_b = field(word, 4, 2);
  }
  const bool known = type_of(kind, field(word, 7, 3), found.type_a) &&
                     type_of(kind, field(word, 10, 3), found.type_b);
  std::string problem = problem_of_fields(found, known, kind, word);
  if (problem.empty()) problem = problem_of_shape(found, kind, group);
  if (!problem.empty()) {
    fail({.kind = Class::kDescriptor,
          .pc = pc,
          .text = "instruction descriptor of tcgen05.mma: " + problem});
  }
  return found;
}

}  // namespace kb::emu
