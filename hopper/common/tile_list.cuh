// Which CTA computes which tiles: a list that travels in the kernel's argument.
#pragma once

#include "kb.cuh"

namespace kb {

// Tokens that a tile can have. The tensor cores take any multiple of 8; each width is code of its
// own, and below 64 the dequantization of the weights takes as long whatever the width.
inline constexpr uint32_t kTileWidths[] = {32,  64,  80,  96,  112, 128, 144,
                                           160, 176, 192, 208, 224, 240, 256};
inline constexpr uint32_t kWidths = sizeof kTileWidths / sizeof *kTileWidths;
inline constexpr uint32_t kWidestTile = kTileWidths[kWidths - 1];

// A width that the compiler knows.
template <uint32_t kValue>
struct Width {
  static constexpr uint32_t kColumns = kValue;
};

// body(Width<columns>{}): one branch, so that the code of other widths is not fetched on the way.
template <typename Body>
KB_DEVICE void with_width(uint32_t columns, Body&& body) {
  // clang-format off
  switch (columns) {
    case 32: return body(Width<32>{});
    case 64: return body(Width<64>{});
    case 80: return body(Width<80>{});
    case 96: return body(Width<96>{});
    case 112: return body(Width<112>{});
    case 128: return body(Width<128>{});
    case 144: return body(Width<144>{});
    case 160: return body(Width<160>{});
    case 176: return body(Width<176>{});
    case 192: return body(Width<192>{});
    case 208: return body(Width<208>{});
    case 224: return body(Width<224>{});
    case 240: return body(Width<240>{});
    default: return body(Width<256>{});
  }
  // clang-format on
}

struct Tile {
  uint32_t token;      // the first, a multiple of 8
  uint16_t row_block;  // of 128 weight rows
  uint8_t group;
  uint8_t eights;  // of tokens: columns() / 8
  KB_HOST_DEVICE constexpr uint32_t columns() const { return 8u * eights; }
};
static_assert(sizeof(Tile) == 8);

inline constexpr uint32_t kMaxTiles = 1024;  // of one launch
inline constexpr uint32_t kMaxCtas = 256;

// CTA i has the tiles first[i] to first[i + 1] - 1.
struct TileList {
  Tile tiles[kMaxTiles];
  uint16_t first[kMaxCtas + 1];
};

}  // namespace kb
