// What the emulator's inline ptx functions call for TMA, tensor maps and cp.async (PTX ISA 9.1,
// 9.7.9). Each takes the
// caller's address on entry, so that a finding names the kernel's line.
#pragma once

#include <cstdint>

#include "bulk_reduction.hpp"
#include "ptx/types.cuh"

namespace kb::rt {
struct TensorMapTile;
}  // namespace kb::rt

namespace kb::emu {

// A copy's destination CTAs: the executing one, unless there is a mask.
inline constexpr int32_t kNoMask = -1;

// How an instruction addresses a tensor: a box; pixels of images; four rows of a matrix.
enum class BoxMode : uint32_t { kTile, kIm2col, kRows };
// Start of a box, and of how many dimensions the instruction is. Of rows: the first column, and
// each one's number.
struct BoxStart {
  uint32_t rank;
  int32_t at[5];
  BoxMode mode = BoxMode::kTile;
  uint16_t offsets[3] = {};  // of pixels: what is added to W, H and D
};

// Bulk copies. `mask`: kNoMask or a ClusterMask's bits. Addresses are shared::cluster addresses.
void bulk_load(void* dst, const void* src, uint32_t bytes, void* bar, int32_t mask);
void bulk_copy_to_cluster(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar,
                          const BulkReduction& reduction = {});
void bulk_store(void* dst, const void* src, uint32_t bytes, const BulkReduction& reduction = {});
void box_load(void* dst, const TensorMap* map, BoxStart start, void* bar, int32_t mask);
// The barrier in the executing CTA or its pair's other one.
void box_load_pair(void* dst, const TensorMap* map, BoxStart start, uint32_t bar,
                   int32_t mask = kNoMask);
// The elements are of the map's type.
void box_store(const TensorMap* map, BoxStart start, const void* src,
               BulkOperation operation = BulkOperation::kCopy);
void bulk_commit_group();
void bulk_wait_group(uint32_t pending, bool read);

// Hints: checked, without effect.
void bulk_prefetch(const void* src, uint32_t bytes);
void box_prefetch(const TensorMap* map, BoxStart start);
void prefetch_tensor_map(const TensorMap* map);
void check_policy(uint64_t policy);

// Tensor maps.
enum class MapField : uint32_t {
  kGlobalAddress,
  kRank,
  kBoxDim,
  kGlobalDim,
  kGlobalStride,
  kElementStride,
  kElement,
  kInterleave,
  kSwizzle,
  kFill,
};
// `index`: the dimension, for fields that have several.
void tensormap_replace(TensorMap* map, bool in_global, MapField field, uint32_t index,
                       uint64_t value);
void tensormap_cp_fenceproxy(TensorMap* global_map, const TensorMap* shared_map);
void fence_proxy_tensormap_release();
void fence_proxy_tensormap_acquire(const TensorMap* map);

// cp.async.
void async_copy(void* dst, const void* src, uint32_t bytes, uint32_t source_bytes);
void async_copy_commit_group();
void async_copy_wait_group(uint32_t pending);
void async_copy_arrive(void* bar, bool noinc);

// Host side: throws rt::Error for a tile that the driver would refuse.
TensorMap encode_tensor_map(const rt::TensorMapTile& tile);

}  // namespace kb::emu
