#pragma once

#include "text.inl"

namespace kb::ptx {

namespace detail {

KB_DEVICE uint64_t map_address(SpaceSharedCta, const TensorMap* map) {
  return __cvta_generic_to_shared(map);
}
KB_DEVICE uint64_t map_address(SpaceGlobal, const TensorMap* map) {
  return global_address(map);
}

}  // namespace detail

template <typename Space>
KB_DEVICE void tensormap_replace_global_address(Space, TensorMap* map, const void* address) {
  // clang-format off
  asm volatile("tensormap.replace.tile.global_address.%2.b1024.b64 [%0], %1;"
               :: "l"(detail::map_address(Space{}, map)), "l"(detail::generic_address(address)),
                  "C"(detail::Text<Space>::kValue) : "memory");
  // clang-format on
}

template <typename Space>
KB_DEVICE void tensormap_replace_rank(Space, TensorMap* map, uint32_t rank_minus_1) {
  // clang-format off
  asm volatile("tensormap.replace.tile.rank.%2.b1024.b32 [%0], %1;"
               :: "l"(detail::map_address(Space{}, map)), "r"(rank_minus_1),
                  "C"(detail::Text<Space>::kValue) : "memory");
  // clang-format on
}

template <uint32_t kDim, typename Space>
KB_DEVICE void tensormap_replace_box_dim(Space, TensorMap* map, uint32_t elements) {
  // clang-format off
  asm volatile("tensormap.replace.tile.box_dim.%3.b1024.b32 [%0], %1, %2;"
               :: "l"(detail::map_address(Space{}, map)), "n"(kDim), "r"(elements),
                  "C"(detail::Text<Space>::kValue) : "memory");
  // clang-format on
}

template <uint32_t kDim, typename Space>
KB_DEVICE void tensormap_replace_global_dim(Space, TensorMap* map, uint32_t elements) {
  // clang-format off
  asm volatile("tensormap.replace.tile.global_dim.%3.b1024.b32 [%0], %1, %2;"
               :: "l"(detail::map_address(Space{}, map)), "n"(kDim), "r"(elements),
                  "C"(detail::Text<Space>::kValue) : "memory");
  // clang-format on
}

template <uint32_t kDim, typename Space>
KB_DEVICE void tensormap_replace_global_stride(Space, TensorMap* map, uint64_t bytes) {
  // clang-format off
  asm volatile("tensormap.replace.tile.global_stride.%3.b1024.b64 [%0], %1, %2;"
               :: "l"(detail::map_address(Space{}, map)), "n"(kDim), "l"(bytes),
                  "C"(detail::Text<Space>::kValue) : "memory");
  // clang-format on
}

template <uint32_t kDim, typename Space>
KB_DEVICE void tensormap_replace_element_stride(Space, TensorMap* map, uint32_t stride) {
  // clang-format off
  asm volatile("tensormap.replace.tile.element_stride.%3.b1024.b32 [%0], %1, %2;"
               :: "l"(detail::map_address(Space{}, map)), "n"(kDim), "r"(stride),
                  "C"(detail::Text<Space>::kValue) : "memory");
  // clang-format on
}

template <TensorMapElement kElement, typename Space>
KB_DEVICE void tensormap_replace_elemtype(Space, TensorMap* map) {
  // clang-format off
  asm volatile("tensormap.replace.tile.elemtype.%2.b1024.b32 [%0], %1;"
               :: "l"(detail::map_address(Space{}, map)), "n"(static_cast<uint32_t>(kElement)),
                  "C"(detail::Text<Space>::kValue) : "memory");
  // clang-format on
}

template <TensorMapInterleave kInterleave, typename Space>
KB_DEVICE void tensormap_replace_interleave_layout(Space, TensorMap* map) {
  // clang-format off
  asm volatile("tensormap.replace.tile.interleave_layout.%2.b1024.b32 [%0], %1;"
               :: "l"(detail::map_address(Space{}, map)), "n"(static_cast<uint32_t>(kInterleave)),
                  "C"(detail::Text<Space>::kValue) : "memory");
  // clang-format on
}

template <TensorMapSwizzle kSwizzle, typename Space>
KB_DEVICE void tensormap_replace_swizzle_mode(Space, TensorMap* map) {
  // clang-format off
  asm volatile("tensormap.replace.tile.swizzle_mode.%2.b1024.b32 [%0], %1;"
               :: "l"(detail::map_address(Space{}, map)), "n"(static_cast<uint32_t>(kSwizzle)),
                  "C"(detail::Text<Space>::kValue) : "memory");
  // clang-format on
}

template <TensorMapFill kFill, typename Space>
KB_DEVICE void tensormap_replace_fill_mode(Space, TensorMap* map) {
  // clang-format off
  asm volatile("tensormap.replace.tile.fill_mode.%2.b1024.b32 [%0], %1;"
               :: "l"(detail::map_address(Space{}, map)), "n"(static_cast<uint32_t>(kFill)),
                  "C"(detail::Text<Space>::kValue) : "memory");
  // clang-format on
}

KB_DEVICE void tensormap_cp_fenceproxy(TensorMap* global_map, const TensorMap* shared_map) {
  // clang-format off
  asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu"
               ".sync.aligned [%0], [%1], 128;"
               :: "l"(detail::global_address(global_map)), "r"(smem_address(shared_map))
               : "memory");
  // clang-format on
}

KB_DEVICE void fence_proxy_tensormap_generic_release_gpu() {
  asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
}

KB_DEVICE void fence_proxy_tensormap_generic_acquire_gpu(const TensorMap* map) {
  // clang-format off
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;"
               :: "l"(detail::generic_address(map)) : "memory");
  // clang-format on
}

}  // namespace kb::ptx
