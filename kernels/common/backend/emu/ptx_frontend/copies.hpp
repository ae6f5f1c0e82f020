// Copies of the async proxy and cp.async, tensor maps (PTX ISA 9.1, 9.7.9): PTX's operands → the
// runtime's functions.
#pragma once

#include "mbarriers.hpp"
#include "runtime/api_tma.hpp"

namespace px {

using emu::kNoMask;
using kb::TensorMap;
using Start = emu::BoxStart;
using emu::BoxMode;

PX const TensorMap* map_at(const void* pointer) {
  return static_cast<const TensorMap*>(pointer);
}

PX void cp_async(u32 to, const void* from, u32 bytes, u32 source_bytes) {
  emu::async_copy(cluster_at(to), from, bytes, min(source_bytes, bytes));
}
PX void cp_async_commit() {
  emu::async_copy_commit_group();
}
PX void cp_async_wait(u32 pending) {
  emu::async_copy_wait_group(pending);
}
PX void cp_async_arrive(u32 bar, bool noinc) {
  emu::async_copy_arrive(cluster_at(bar), noinc);
}
PX void bulk_load(u32 to, const void* from, u32 bytes, u32 bar, s32 mask) {
  emu::bulk_load(cluster_at(to), from, bytes, cluster_at(bar), mask);
}
PX void bulk_store(void* to, u32 from, u32 bytes) {
  emu::bulk_store(to, cluster_at(from), bytes);
}
using emu::BulkElement;
using emu::BulkOperation;
PX void bulk_reduce(void* to, u32 from, u32 bytes, BulkOperation operation, BulkElement element) {
  emu::bulk_store(to, cluster_at(from), bytes, {operation, element});
}
PX void bulk_copy_to_cluster(u32 to, u32 from, u32 bytes, u32 bar,
                             emu::BulkReduction reduction = {}) {
  emu::bulk_copy_to_cluster(to, cluster_at(from), bytes, bar, reduction);
}
template <typename T>
PX void red_async(u32 to, u32 bar, T value, emu::BulkReduction reduction) {
  emu::red_async_shared_cluster(to, &value, reduction, bar);
}
PX void bulk_commit() {
  emu::bulk_commit_group();
}
PX void bulk_wait(u32 pending, bool read) {
  emu::bulk_wait_group(pending, read);
}
PX void box_load(u32 to, const void* map, Start start, u32 bar, s32 mask) {
  emu::box_load(cluster_at(to), map_at(map), start, cluster_at(bar), mask);
}
PX void box_load_pair(u32 to, const void* map, Start start, u32 bar, s32 mask) {
  emu::box_load_pair(cluster_at(to), map_at(map), start, bar, mask);
}
PX void box_store(const void* map, Start start, u32 from,
                  BulkOperation operation = BulkOperation::kCopy) {
  emu::box_store(map_at(map), start, cluster_at(from), operation);
}
template <typename T, typename... Values>
PX void st_async(u32 to, u32 bar, Values... values) {
  const T given[] = {static_cast<T>(values)...};
  emu::st_async_shared_cluster(to, given, sizeof given, bar);
}
// Tensor maps; the fields in the order of emu::MapField.
enum class Field : u32 {
  global_address,
  rank,
  box_dim,
  global_dim,
  global_stride,
  element_stride,
  elemtype,
  interleave_layout,
  swizzle_mode,
  fill_mode,
};
PX void tensormap_replace(void* map, bool in_global, Field field, u32 dimension, u64 value) {
  emu::tensormap_replace(static_cast<TensorMap*>(map), in_global, static_cast<emu::MapField>(field),
                         dimension, value);
}
PX void tensormap_cp_fenceproxy(void* to, const void* from) {
  emu::tensormap_cp_fenceproxy(static_cast<TensorMap*>(to), map_at(from));
}

}  // namespace px
