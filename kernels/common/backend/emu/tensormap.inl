#pragma once

#include <type_traits>

#include "runtime/api_tma.hpp"

namespace kb::ptx {

namespace detail {

template <typename Space>
KB_DEVICE void replace(TensorMap* map, emu::MapField field, uint32_t index, uint64_t value) {
  constexpr bool kGlobal = std::is_same_v<Space, SpaceGlobal>;
  static_assert(kGlobal || std::is_same_v<Space, SpaceSharedCta>,
                "tensormap.replace takes a map in shared::cta or global");
  emu::tensormap_replace(map, kGlobal, field, index, value);
}

}  // namespace detail

template <typename Space>
KB_DEVICE void tensormap_replace_global_address(Space, TensorMap* map, const void* address) {
  detail::replace<Space>(map, emu::MapField::kGlobalAddress, 0,
                         reinterpret_cast<uint64_t>(address));
}

template <typename Space>
KB_DEVICE void tensormap_replace_rank(Space, TensorMap* map, uint32_t rank_minus_1) {
  detail::replace<Space>(map, emu::MapField::kRank, 0, rank_minus_1);
}

template <uint32_t kDim, typename Space>
KB_DEVICE void tensormap_replace_box_dim(Space, TensorMap* map, uint32_t elements) {
  static_assert(kDim < 5, "a tensor map has five dimensions");
  detail::replace<Space>(map, emu::MapField::kBoxDim, kDim, elements);
}

template <uint32_t kDim, typename Space>
KB_DEVICE void tensormap_replace_global_dim(Space, TensorMap* map, uint32_t elements) {
  static_assert(kDim < 5, "a tensor map has five dimensions");
  detail::replace<Space>(map, emu::MapField::kGlobalDim, kDim, elements);
}

template <uint32_t kDim, typename Space>
KB_DEVICE void tensormap_replace_global_stride(Space, TensorMap* map, uint64_t bytes) {
  static_assert(kDim < 4, "a tensor map has four strides");
  detail::replace<Space>(map, emu::MapField::kGlobalStride, kDim, bytes);
}

template <uint32_t kDim, typename Space>
KB_DEVICE void tensormap_replace_element_stride(Space, TensorMap* map, uint32_t stride) {
  static_assert(kDim < 5, "a tensor map has five dimensions");
  detail::replace<Space>(map, emu::MapField::kElementStride, kDim, stride);
}

template <TensorMapElement kElement, typename Space>
KB_DEVICE void tensormap_replace_elemtype(Space, TensorMap* map) {
  detail::replace<Space>(map, emu::MapField::kElement, 0, static_cast<uint64_t>(kElement));
}

template <TensorMapInterleave kInterleave, typename Space>
KB_DEVICE void tensormap_replace_interleave_layout(Space, TensorMap* map) {
  detail::replace<Space>(map, emu::MapField::kInterleave, 0, static_cast<uint64_t>(kInterleave));
}

template <TensorMapSwizzle kSwizzle, typename Space>
KB_DEVICE void tensormap_replace_swizzle_mode(Space, TensorMap* map) {
  detail::replace<Space>(map, emu::MapField::kSwizzle, 0, static_cast<uint64_t>(kSwizzle));
}

template <TensorMapFill kFill, typename Space>
KB_DEVICE void tensormap_replace_fill_mode(Space, TensorMap* map) {
  detail::replace<Space>(map, emu::MapField::kFill, 0, static_cast<uint64_t>(kFill));
}

KB_DEVICE void tensormap_cp_fenceproxy(TensorMap* global_map, const TensorMap* shared_map) {
  emu::tensormap_cp_fenceproxy(global_map, shared_map);
}

KB_DEVICE void fence_proxy_tensormap_generic_release_gpu() {
  emu::fence_proxy_tensormap_release();
}

KB_DEVICE void fence_proxy_tensormap_generic_acquire_gpu(const TensorMap* map) {
  emu::fence_proxy_tensormap_acquire(map);
}

}  // namespace kb::ptx
