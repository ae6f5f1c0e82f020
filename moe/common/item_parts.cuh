// How a piece, some tokens of an expert, is cut into items.
#pragma once

#include "fp8_block.cuh"

namespace kb {

struct Parts {
  uint32_t item_n, item_k;  // blocks of an item
  uint32_t along_n, all;    // items of a piece
};

// Of a piece of blocks_n × blocks_k blocks.
inline Parts parts_of(uint32_t blocks_n, uint32_t blocks_k, uint32_t item_n, uint32_t item_k) {
  const uint32_t along_n = ceil_div(blocks_n, item_n);
  return {item_n, item_k, along_n, along_n * ceil_div(blocks_k, item_k)};
}

}  // namespace kb
