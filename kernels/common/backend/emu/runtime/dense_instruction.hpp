// The instruction descriptor of tcgen05.mma.kind::f16, ::tf32, ::f8f6f4, ::i8 and ::mxf8f6f4 (PTX
// ISA 9.1, 9.7.16.4.2).
#pragma once

#include "api_tensor.hpp"
#include "mma_dense.hpp"
#include "options.hpp"

namespace kb::emu {

struct DenseInstruction {
  uint32_t rows;  // of all CTAs that take part
  uint32_t columns;
  DenseType type_a;
  DenseType type_b;
  bool negate_a;
  bool negate_b;
  bool transposed_a;
  bool transposed_b;
  bool saturate = false;
  uint32_t scale_a = 0;  // scale factor ids: a byte of a word
  uint32_t scale_b = 0;
};

// The fields, and which values the kind has with cta_group `group`; a finding that ends the launch
// for others.
DenseInstruction dense_instruction(DenseKind kind, uint32_t word, uint32_t group, Pc pc);

}  // namespace kb::emu
