// Scale factors of block-scaled products in tensor memory (PTX ISA 9.1, 9.7.16.10.7).
#pragma once

#include "tmem.hpp"

namespace kb::emu {

// A scale matrix: row x in the word at column x / 32 of lane x % 32, repeated every 32 lanes. Of
// the word a product takes `count` bytes from `first` on: one for scale_vec::1X, 2 and 4 for 2X and
// 4X.
struct ScaleColumns {
  uint32_t column;
  bool b;  // of B
  uint32_t first = 0;
  uint32_t count = 4;
};

// The bytes that a product takes of each row, `count` of them, one row after another.
void read_scales(const TmemCells& cells, const ScaleColumns& scales, uint32_t rows, uint8_t* out);

// Stricter: PTX shows the layout repeated over the four slabs of 32 lanes, and not which slab
// serves which rows of D. All four copies of each scale have to be equal.
void check_replicas(const TmemCells& cells, const ScaleColumns& scales, uint32_t rows, Pc pc);

// That both matrices lie in allocated columns, from lane 0 on, and beside the accumulator's
// columns; findings that end the launch.
struct ScalePlaces {
  TmemAddress a;
  TmemAddress b;
  uint32_t columns_of_b;
};
void check_scale_places(const ScalePlaces& places, uint32_t d_column, uint32_t d_columns, Cta& cta,
                        Pc pc);

// Columns that the scales of so many rows take.
constexpr uint32_t scale_columns(uint32_t rows) {
  return (rows + 31) / 32;
}

}  // namespace kb::emu
