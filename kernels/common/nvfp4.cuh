// NVFP4 operands as they lie in memory: packed e2m1 elements and their scales' blocked layout.
#pragma once

#include "kb.cuh"

namespace kb {

// Bytes of `elements` consecutive e2m1 elements; the lower index is the low nibble.
KB_HOST_DEVICE constexpr uint32_t e2m1_bytes(uint32_t elements) {
  return elements / 2;
}

// The blocked layout of ue4m3 scales (one for 16 elements along K) is made of atoms: 128 rows by 64
// of K in 512 contiguous bytes, byte (row % 32) * 16 + (row / 32) * 4 + k / 16. Atoms follow each
// other along K, then along rows; the last row of atoms is padded.
inline constexpr uint32_t kScaleAtomRows = 128;
inline constexpr uint32_t kScaleAtomK = 64;
inline constexpr uint32_t kScaleAtomBytes = 512;
// Columns of tensor memory that an atom fills: row r in column r / 32 of them, lane r % 32 (and 32,
// 64, 96 further), so that columns can start at any multiple of 32 rows.
inline constexpr uint32_t kScaleAtomColumns = 4;

// Byte offset of the atom that holds (row, k) of a matrix with `k_extent` elements along K.
KB_HOST_DEVICE constexpr uint64_t scale_atom_offset(uint32_t row, uint32_t k, uint32_t k_extent) {
  const uint64_t atoms = uint64_t{row / kScaleAtomRows} * (k_extent / kScaleAtomK);
  return (atoms + k / kScaleAtomK) * kScaleAtomBytes;
}

// First of the atom's columns that holds scales of `row` and of what follows; row % 32 = 0.
KB_HOST_DEVICE constexpr uint32_t scale_atom_column(uint32_t row) {
  return row % kScaleAtomRows / 32;
}

}  // namespace kb
