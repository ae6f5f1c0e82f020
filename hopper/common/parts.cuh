// Tiles of which several CTAs share K, and which CTA has which part: a list that travels in the
// kernel's argument.
#pragma once

#include "tile_list.cuh"

namespace kb {

// `pairs` blocks of 128 of a tile's K. All but the last part leave their sums in a slot each, and
// the last one adds them to its own and stores the tile.
struct Part {
  Tile tile;
  uint16_t first_pair;
  uint16_t pairs;
  uint16_t slot;   // of this part's sums, or the first that is to be added
  uint16_t added;  // slots to add; kLeavesSums: this part leaves its own
};
static_assert(sizeof(Part) == 16);
inline constexpr uint16_t kLeavesSums = 0xffff;

inline constexpr uint32_t kMaxParts = 512;  // of one launch

// CTA i has the parts first[i] to first[i + 1] - 1.
struct PartList {
  Part parts[kMaxParts];
  uint16_t first[kMaxCtas + 1];
};

}  // namespace kb
