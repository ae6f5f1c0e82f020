// A stage of a block-scaled GEMM in shared memory.
#pragma once

#include "nvfp4.cuh"

namespace kb {

// Tiles of A [kRowsA, kTileK] and B [kRowsB, kTileK], packed e2m1, and their scales. A row fills
// one period of the swizzle that it is loaded with, and the tiles start on a multiple of its
// pattern, as the TMA and the tensor core ask (PTX ISA 9.1, 9.7.16).
template <uint32_t kRowsA, uint32_t kRowsB, uint32_t kTileK>
struct ScaledStage {
  static constexpr uint32_t kRowBytes = e2m1_bytes(kTileK);
  static constexpr uint32_t kScaleBytes = kTileK / kScaleAtomK * kScaleAtomBytes;
  static constexpr uint32_t kScaleRowsA = (kRowsA + kScaleAtomRows - 1) / kScaleAtomRows;
  static constexpr uint32_t kScaleRowsB = (kRowsB + kScaleAtomRows - 1) / kScaleAtomRows;

  alignas(8 * kRowBytes) uint8_t a[kRowsA * kRowBytes];
  alignas(8 * kRowBytes) uint8_t b[kRowsB * kRowBytes];
  alignas(128) uint8_t sfa[kScaleRowsA * kScaleBytes];  // [rows of atoms, kTileK / 64, 32, 16]
  alignas(128) uint8_t sfb[kScaleRowsB * kScaleBytes];

  // What a load of all of it transfers: the size without padding.
  static constexpr uint32_t kBytes = sizeof(a) + sizeof(b) + sizeof(sfa) + sizeof(sfb);
};

}  // namespace kb
