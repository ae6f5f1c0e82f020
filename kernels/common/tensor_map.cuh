// Tensor maps of the group GEMM's operands, encoded on the host.
#pragma once

#include "nvfp4.cuh"
#include "rt.cuh"

namespace kb {

// A packed e2m1 matrix [rows, k], K-major, as bytes: boxes of `box_rows` rows by 256 elements, one
// period of the 128-byte swizzle. Rows past the end read as zero. The address may be null if the
// device will set it.
inline TensorMap encode_operand_map(const void* address, uint32_t rows, uint32_t k,
                                    uint32_t box_rows) {
  const uint64_t pitch = e2m1_bytes(k);
  return rt::encode_tensor_map({.element = TensorMapElement::kU8,
                                .rank = 2,
                                .address = address,
                                .dims = {pitch, rows},
                                .strides = {pitch},
                                .box = {128, box_rows},
                                .swizzle = TensorMapSwizzle::k128B});
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
