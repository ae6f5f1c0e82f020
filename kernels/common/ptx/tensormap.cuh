// Changing a tensor map on the device: PTX ISA 9.1, 9.7.9 (tensormap.replace) and 9.7.13
// (tensormap.cp_fenceproxy, fence.proxy.tensormap). The order of use:
// 1. copy a template map to shared memory; one thread replaces fields; warp barrier;
// 2. loads that still read the old map: their thread commits a group and waits with .read;
// 3. a whole warp publishes the map with tensormap_cp_fenceproxy;
// 4. each thread that will issue a copy with it acquires it first.
// Every replace is one thread's weak write to all 128 bytes, of a 128-byte aligned map in the
// named space. Dimension numbers are compile-time constants, 0 the contiguous one.
#pragma once

#include "address.cuh"

namespace kb::ptx {

// PTX: tensormap.replace.tile.global_address.<shared::cta|global>.b1024.b64 [map], address;
// sm_90a, sm_100a · one thread. The tensor's first byte, 16-byte aligned.
template <typename Space>
KB_DEVICE void tensormap_replace_global_address(Space, TensorMap* map, const void* address);

// PTX: tensormap.replace.tile.rank.<shared::cta|global>.b1024.b32 [map], rank_minus_1;
// sm_90a, sm_100a · one thread. Number of dimensions less one.
template <typename Space>
KB_DEVICE void tensormap_replace_rank(Space, TensorMap* map, uint32_t rank_minus_1);

// PTX: tensormap.replace.tile.box_dim.<shared::cta|global>.b1024.b32 [map], kDim, elements;
// sm_90a, sm_100a · one thread. The box's extent, 1 … 256.
template <uint32_t kDim, typename Space>
KB_DEVICE void tensormap_replace_box_dim(Space, TensorMap* map, uint32_t elements);

// PTX: tensormap.replace.tile.global_dim.<shared::cta|global>.b1024.b32 [map], kDim, elements;
// sm_90a, sm_100a · one thread. The tensor's extent.
template <uint32_t kDim, typename Space>
KB_DEVICE void tensormap_replace_global_dim(Space, TensorMap* map, uint32_t elements);

// PTX: tensormap.replace.tile.global_stride.<shared::cta|global>.b1024.b64 [map], kDim, bytes;
// sm_90a, sm_100a · one thread. Bytes from one index of dimension kDim + 1 to the next, a multiple
// of 16.
template <uint32_t kDim, typename Space>
KB_DEVICE void tensormap_replace_global_stride(Space, TensorMap* map, uint64_t bytes);

// PTX: tensormap.replace.tile.element_stride.<shared::cta|global>.b1024.b32 [map], kDim, stride;
// sm_90a, sm_100a · one thread. Step in elements, 1 … 8.
template <uint32_t kDim, typename Space>
KB_DEVICE void tensormap_replace_element_stride(Space, TensorMap* map, uint32_t stride);

// PTX: tensormap.replace.tile.elemtype.<shared::cta|global>.b1024.b32 [map], kElement;
// sm_90a, sm_100a · one thread. The elements' type.
template <TensorMapElement kElement, typename Space>
KB_DEVICE void tensormap_replace_elemtype(Space, TensorMap* map);

// PTX: tensormap.replace.tile.interleave_layout.<shared::cta|global>.b1024.b32 [map], kInterleave;
// sm_90a, sm_100a · one thread. How channels are interleaved; kNone for a matrix.
template <TensorMapInterleave kInterleave, typename Space>
KB_DEVICE void tensormap_replace_interleave_layout(Space, TensorMap* map);

// PTX: tensormap.replace.tile.swizzle_mode.<shared::cta|global>.b1024.b32 [map], kSwizzle;
// sm_90a, sm_100a · one thread. How the box is permuted in shared memory.
template <TensorMapSwizzle kSwizzle, typename Space>
KB_DEVICE void tensormap_replace_swizzle_mode(Space, TensorMap* map);

// PTX: tensormap.replace.tile.fill_mode.<shared::cta|global>.b1024.b32 [map], kFill;
// sm_90a, sm_100a · one thread. What elements outside the tensor read as.
template <TensorMapFill kFill, typename Space>
KB_DEVICE void tensormap_replace_fill_mode(Space, TensorMap* map);

// PTX: tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
//      [global_map], [shared_map], 128;
// sm_90+ · the whole converged warp. Copies the map and releases it at GPU scope towards the
// tensormap proxy: pairs with fence_proxy_tensormap_generic_acquire_gpu.
KB_DEVICE void tensormap_cp_fenceproxy(TensorMap* global_map, const TensorMap* shared_map);

// PTX: fence.proxy.tensormap::generic.release.gpu;
// sm_90+ · the thread that replaced fields of a map in global memory, before it synchronizes with
// the user's thread.
KB_DEVICE void fence_proxy_tensormap_generic_release_gpu();

// PTX: fence.proxy.tensormap::generic.acquire.gpu [map], 128;
// sm_90+ · each thread that issues copies with the map, after it has synchronized with the writer
// and before its first copy. Without it the previous map may be used.
KB_DEVICE void fence_proxy_tensormap_generic_acquire_gpu(const TensorMap* map);

}  // namespace kb::ptx

#include "tensormap.inl"
