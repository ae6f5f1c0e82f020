#pragma once

#include "runtime/api_ptx.hpp"

namespace kb {

KB_DEVICE void ldmatrix_m8n8_x4_b16(uint32_t (&values)[4], const void* row) {
  emu::ldmatrix(values, 4, false, row);
}

KB_DEVICE void mma_m16n8k16_f32_f16(float (&sums)[4], const uint32_t (&a)[4],
                                    const uint32_t (&b)[2]) {
  static constexpr emu::MmaForm kForm = {.a = emu::MmaElement::kF16,
                                         .b = emu::MmaElement::kF16,
                                         .sum = emu::MmaSum::kF32,
                                         .rows = 16,
                                         .depth = 16,
                                         .saturate = false,
                                         .exclusive = false};
  uint32_t words[4];
  __builtin_memcpy(words, sums, sizeof words);
  emu::mma_sync(kForm, words, a, b, words);
  __builtin_memcpy(sums, words, sizeof words);
}

}  // namespace kb
