// Pieces of work whose tokens stay in shared memory while the weights stream by.
#pragma once

#include "kb.cuh"

namespace kb {

// Up to kTokens tokens of an expert, `n_blocks` times 128 outputs, `k_blocks` blocks of K.
struct Item {
  uint32_t expert;
  uint32_t first;  // of the expert's tokens
  uint32_t n_block, n_blocks;
  uint32_t k_block, k_blocks;
};

// What the warps that multiply need of an item.
inline constexpr uint32_t kNoItem = 0xffffffff;
template <uint32_t kTokens>
struct ItemTokens {
  Item item;
  uint32_t rows;  // tokens; kNoItem after the last item
  uint32_t tokens[kTokens];
  uint32_t slots[kTokens];  // of the expert among the token's
  float weights[kTokens];   // of the expert in the token's sum
};

// Stages of an item's weights that are requested before the expert is known to have tokens: all
// that there are.
template <uint32_t kStages>
KB_DEVICE uint32_t eager_blocks(const Item& item) {
  const uint32_t blocks = item.n_blocks * item.k_blocks;
  return blocks < kStages ? blocks : kStages;
}

}  // namespace kb
