// Tensor map of packed weights, encoded on the host.
#pragma once

#include "nvfp4.cuh"
#include "rt.cuh"

namespace kb {

// A packed e2m1 matrix [rows, k], K-major, as bytes: boxes of `box_rows` rows by 128 elements that
// lie row after row in shared memory. Bytes past either end read as zero.
inline TensorMap encode_weight_map(const void* address, uint32_t rows, uint32_t k,
                                   uint32_t box_rows) {
  const uint64_t pitch = e2m1_bytes(k);
  return rt::encode_tensor_map({.element = TensorMapElement::kU8,
                                .rank = 2,
                                .address = address,
                                .dims = {pitch, rows},
                                .strides = {pitch},
                                .box = {e2m1_bytes(128), box_rows},
                                .swizzle = TensorMapSwizzle::kNone});
}

}  // namespace kb
