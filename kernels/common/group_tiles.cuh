// Tiles of C, counted through all groups of a call: group after group, row after row of tiles.
#pragma once

#include "kb.cuh"

namespace kb {

KB_HOST_DEVICE constexpr uint32_t ceil_div(uint32_t value, uint32_t divisor) {
  return value / divisor + (value % divisor != 0);
}

// Tiles of `tile_m` by `tile_n` that cover a matrix of m by n.
KB_HOST_DEVICE constexpr uint32_t count_tiles(uint32_t m, uint32_t n, uint32_t tile_m,
                                              uint32_t tile_n) {
  return ceil_div(m, tile_m) * ceil_div(n, tile_n);
}

// A tile of a group: `index` counts within the group.
struct GroupTile {
  uint32_t group;
  uint32_t index;
};

// Where tile `tile` of the call is, by linear search. tile_end(g): tiles of the groups 0 … g;
// `tile` is below that of the last group.
template <typename TileEnd>
KB_DEVICE GroupTile find_group_tile(TileEnd tile_end, uint32_t tile) {
  uint32_t group = 0;
  uint32_t begin = 0;
  for (uint32_t end = tile_end(0); tile >= end; end = tile_end(group)) {
    begin = end;
    ++group;
  }
  return {group, tile - begin};
}

}  // namespace kb
