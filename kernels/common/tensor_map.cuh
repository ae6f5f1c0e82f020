// Tensor maps of the group GEMM's operands, encoded on the host.
#pragma once

#include "group_tiles.cuh"
#include "nvfp4.cuh"
#include "rt.cuh"

namespace kb {

namespace detail {

inline TensorMap encode_operand_map(const void* address, uint32_t rows, uint32_t k,
                                    uint32_t box_rows, uint32_t box_bytes,
                                    TensorMapSwizzle swizzle) {
  const uint64_t pitch = e2m1_bytes(k);
  return rt::encode_tensor_map({.element = TensorMapElement::kU8,
                                .rank = 2,
                                .address = address,
                                .dims = {pitch, rows},
                                .strides = {pitch},
                                .box = {box_bytes, box_rows},
                                .swizzle = swizzle});
}

}  // namespace detail

// A packed e2m1 matrix [rows, k], K-major, as bytes: boxes of `box_rows` rows by 256 elements, one
// period of the 128-byte swizzle. Rows past the end read as zero. The address may be null if the
// device will set it.
inline TensorMap encode_operand_map(const void* address, uint32_t rows, uint32_t k,
                                    uint32_t box_rows) {
  return detail::encode_operand_map(address, rows, k, box_rows, 128, TensorMapSwizzle::k128B);
}

// The same in boxes of 128 elements, one period of the 64-byte swizzle.
inline TensorMap encode_operand_map_sw64(const void* address, uint32_t rows, uint32_t k,
                                         uint32_t box_rows) {
  return detail::encode_operand_map(address, rows, k, box_rows, 64, TensorMapSwizzle::k64B);
}

// The same in boxes of 64 elements, one period of the 32-byte swizzle.
inline TensorMap encode_operand_map_sw32(const void* address, uint32_t rows, uint32_t k,
                                         uint32_t box_rows) {
  return detail::encode_operand_map(address, rows, k, box_rows, 32, TensorMapSwizzle::k32B);
}

// Scales in the blocked layout as bytes [row of atoms, half of an atom, 256]: boxes of the atoms of
// 128 rows and `box_k` elements. Atoms past the last row read as zero. The address may be null.
inline TensorMap encode_scale_map(const void* address, uint32_t rows, uint32_t k, uint32_t box_k) {
  constexpr uint32_t kHalfAtom = kScaleAtomBytes / 2;
  return rt::encode_tensor_map(
      {.element = TensorMapElement::kU8,
       .rank = 3,
       .address = address,
       .dims = {kHalfAtom, 2 * k / kScaleAtomK, ceil_div(rows, kScaleAtomRows)},
       .strides = {kHalfAtom, uint64_t{k / kScaleAtomK} * kScaleAtomBytes},
       .box = {kHalfAtom, 2 * box_k / kScaleAtomK, 1}});
}

// An fp16 matrix [rows, columns], row-major, to be written in boxes of `box_rows` by `box_columns`
// that lie row after row in shared memory. Elements past either end are not written.
inline TensorMap encode_output_map(const void* address, uint32_t rows, uint32_t columns,
                                   uint32_t box_rows, uint32_t box_columns) {
  return rt::encode_tensor_map({.element = TensorMapElement::kF16,
                                .rank = 2,
                                .address = address,
                                .dims = {columns, rows},
                                .strides = {uint64_t{columns} * sizeof(f16)},
                                .box = {box_columns, box_rows},
                                .swizzle = TensorMapSwizzle::kNone});
}

}  // namespace kb
