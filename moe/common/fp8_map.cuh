// Tensor maps of FP8 operands, encoded on the host.
#pragma once

#include "fp8_block.cuh"
#include "rt.cuh"

namespace kb {

// An e4m3 matrix [rows, k], K-major: boxes of `box_rows` rows by one block, with the 128-byte
// swizzle.
inline TensorMap encode_fp8_map(const e4m3* address, uint64_t rows, uint32_t k, uint32_t box_rows) {
  return rt::encode_tensor_map({.element = TensorMapElement::kU8,
                                .rank = 2,
                                .address = address,
                                .dims = {k, rows},
                                .strides = {k},
                                .box = {kFp8Block, box_rows},
                                .swizzle = TensorMapSwizzle::k128B});
}

}  // namespace kb
