// Kernels for test_emu_tensor_map.py: maps that the device changes.
#include "tma_test.cuh"

namespace {

// The template with one field replaced.
KB_DEVICE void replace(TensorMap* map, uint32_t field, uint64_t value) {
  const auto narrow = static_cast<uint32_t>(value);
  switch (field) {
    case 0:
      return tensormap_replace_global_address(space_shared_cta, map,
                                              reinterpret_cast<const void*>(value));
    case 1:
      return tensormap_replace_rank(space_shared_cta, map, narrow);
    case 2:
      return tensormap_replace_box_dim<1>(space_shared_cta, map, narrow);
    case 3:
      return tensormap_replace_global_dim<0>(space_shared_cta, map, narrow);
    case 4:
      return tensormap_replace_global_stride<0>(space_shared_cta, map, value);
    case 5:
      return tensormap_replace_element_stride<1>(space_shared_cta, map, narrow);
    case 6:
      return tensormap_replace_elemtype<TensorMapElement::kU16>(space_shared_cta, map);
    case 7:
      return tensormap_replace_interleave_layout<TensorMapInterleave::kNone>(space_shared_cta, map);
    case 8:
      return tensormap_replace_swizzle_mode<TensorMapSwizzle::k32B>(space_shared_cta, map);
    case 9:
      return tensormap_replace_fill_mode<TensorMapFill::kZero>(space_shared_cta, map);
    case 10:
      return tensormap_replace_fill_mode<TensorMapFill::kNan>(space_shared_cta, map);
    default:
      return;
  }
}

// Loads with the map in global memory as it was (unless its first use is with the new one), then
// with a field replaced. out: the second box.
KB_GLOBAL void replace_kernel(KB_GRID_CONSTANT(TensorMap) first, TensorMap* map, Box box,
                              uint32_t second_bytes, uint32_t field, uint64_t value, bool use_first,
                              void* out, uint32_t out_bytes, uint32_t fault) {
  Storage& shared = shared_storage<Storage>();
  start_filled(shared);
  uint32_t phase = 0;
  if (use_first) {
    if (thread_index() == 0) {
      mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.bar, box.bytes);
      load(shared.data, map, box, &shared.bar);
      cp_async_bulk_commit_group();
      if (fault != kNoReadWait) cp_async_bulk_wait_group_read<0>();
    }
    if (fault != kNoReadWait && fault != kGroupAlone) mbarrier_wait_parity(&shared.bar, phase);
    phase ^= 1;
  }
  if (thread_index() == 0) {
    shared.map = first;
    replace(&shared.map, field, value);
  }
  bar_warp_sync();
  tensormap_cp_fenceproxy(map, &shared.map);
  if (use_first && (fault == kNoReadWait || fault == kGroupAlone)) {
    mbarrier_wait_parity(&shared.bar, 0);
    bar_warp_sync();  // thread 0's next phase would lap whoever still waits for this one
  }
  if (thread_index() == 0) {
    if (fault != kNoAcquire) fence_proxy_tensormap_generic_acquire_gpu(map);
    mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.bar, second_bytes);
    load(shared.data + box.offset, map, box, &shared.bar);
  }
  mbarrier_wait_parity(&shared.bar, phase);
  copy_bytes(out, shared.data, out_bytes);
}

// Thread 0 changes the map where it lies, thread `user` loads with it.
KB_GLOBAL void replace_global_kernel(TensorMap* map, Box box, const void* address, uint32_t user,
                                     void* out, uint32_t out_bytes, uint32_t fault) {
  Storage& shared = shared_storage<Storage>();
  start_filled(shared);
  if (thread_index() == 0) {
    tensormap_replace_global_address(space_global, map, address);
    if (fault != kNoRelease) fence_proxy_tensormap_generic_release_gpu();
  }
  if (fault != kNoSyncBeforeAcquire) bar_warp_sync();
  if (thread_index() == user) {
    fence_proxy_tensormap_generic_acquire_gpu(map);
    mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.bar, box.bytes);
    load(shared.data, map, box, &shared.bar);
  }
  mbarrier_wait_parity(&shared.bar, 0);
  copy_bytes(out, shared.data, out_bytes);
}

// CTA 0 publishes a map, CTA 1, of another cluster, loads with it before and after.
KB_GLOBAL void other_cluster_kernel(KB_GRID_CONSTANT(TensorMap) next, TensorMap* map, Box box,
                                    uint32_t* flags, void* out, uint32_t out_bytes,
                                    uint32_t fault) {
  Storage& shared = shared_storage<Storage>();
  start_barrier(shared);
  if (cta_index().x == 0) {
    if (thread_index() == 0) shared.map = next;
    bar_warp_sync();
    global_wait_at_least(&flags[0], 1);
    tensormap_cp_fenceproxy(map, &shared.map);
    bar_warp_sync();
    if (thread_index() == 0) red_release_gpu_global_add_u32(&flags[1], 1);
    return;
  }
  for (uint32_t i = 0; i < 2; ++i) {
    if (thread_index() == 0) {
      if (i == 1 && fault != kNoAcquire) fence_proxy_tensormap_generic_acquire_gpu(map);
      mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.bar, box.bytes);
      load(shared.data, map, box, &shared.bar);
    }
    mbarrier_wait_parity(&shared.bar, i);
    if (i == 1) break;
    bar_warp_sync();
    if (thread_index() == 0) red_release_gpu_global_add_u32(&flags[0], 1);
    global_wait_at_least(&flags[1], 1);
  }
  copy_bytes(out, shared.data, out_bytes);
}

}  // namespace

KB_EXPORT int run_replace(char* message, const TensorMap* first, TensorMap* map, const Box* box,
                          uint32_t second_bytes, uint32_t field, uint64_t value, int use_first,
                          void* out, uint32_t out_bytes, uint32_t fault) {
  RUN(rt::launch(replace_kernel, config(), *first, map, *box, second_bytes, field, value,
                 use_first != 0, out, out_bytes, fault));
}

KB_EXPORT int run_replace_global(char* message, TensorMap* map, const Box* box, const void* address,
                                 uint32_t user, void* out, uint32_t out_bytes, uint32_t fault) {
  RUN(rt::launch(replace_global_kernel, config(), map, *box, address, user, out, out_bytes, fault));
}

KB_EXPORT int run_other_cluster(char* message, const TensorMap* next, TensorMap* map,
                                const Box* box, uint32_t* flags, void* out, uint32_t out_bytes,
                                uint32_t fault) {
  rt::LaunchConfig launch = config();
  launch.grid = {2, 1, 1};
  launch.cooperative = true;
  RUN(rt::launch(other_cluster_kernel, launch, *next, map, *box, flags, out, out_bytes, fault));
}
