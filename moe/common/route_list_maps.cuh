// The tensor map of weights where a thread's four outputs of a token are neighbours, encoded on the
// host.
#pragma once

#include "cta_roles.cuh"
#include "fused_moe.cuh"
#include "rt.cuh"

namespace kb {

// Boxes of 4 `row_group` outputs by one block: row 8 j + g of a box is row 4 g + j of the weights'
// 32.
inline TensorMap encode_weights_in_fours(const FusedMoeCall& call, uint32_t row_group) {
  const auto k = static_cast<uint64_t>(call.k);
  return rt::encode_tensor_map({.element = TensorMapElement::kU8,
                                .rank = 3,
                                .address = call.weights,
                                .dims = {k, uint64_t(call.e) * call.n / 4, 4},
                                .strides = {4 * k, k},
                                .box = {kTileK, row_group, 4},
                                .swizzle = TensorMapSwizzle::k128B});
}

}  // namespace kb
