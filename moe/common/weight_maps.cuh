// Tensor maps of the experts' weights and scales, encoded on the host.
#pragma once

#include "fp8_map.cuh"
#include "fused_moe.cuh"
#include "weight_stream.cuh"

namespace kb {

// Boxes of 128 outputs by one block.
inline TensorMap encode_weights(const FusedMoeCall& call) {
  return encode_fp8_map(call.weights, uint64_t(call.e) * static_cast<uint32_t>(call.n),
                        static_cast<uint32_t>(call.k), kTileN);
}

// All scales in one row, of which a box of kScaleBox starts anywhere.
inline TensorMap encode_weight_scales(const FusedMoeCall& call) {
  const uint64_t count = uint64_t(call.e) * (call.n / kFp8Block) * (call.k / kFp8Block);
  return rt::encode_tensor_map({.element = TensorMapElement::kF32,
                                .rank = 2,
                                .address = call.weight_scales,
                                .dims = {count, 1},
                                .strides = {(count * sizeof(float) + 15) / 16 * 16},
                                .box = {kScaleBox, 1}});
}

}  // namespace kb
