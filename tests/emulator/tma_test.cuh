// What the kernels of test_emu_tma*.py and test_emu_tensor_map.py share.
#pragma once

#include "entry.cuh"
#include "ptx/cluster.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/red.cuh"
#include "ptx/tensormap.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"
#include "rt.cuh"
#include "wait.cuh"

namespace {

using namespace kb;
using namespace kb::ptx;

constexpr uint32_t kBytes = 48 * 1024;
constexpr uint32_t kThreads = 32;

struct alignas(1024) Storage {
  alignas(1024) unsigned char data[kBytes];
  alignas(128) TensorMap map;
  Mbarrier bar;
  Mbarrier second;
};

KB_DEVICE void copy_bytes(void* to, const void* from, uint32_t bytes) {
  auto* words = static_cast<uint32_t*>(to);
  const auto* source = static_cast<const uint32_t*>(from);
  for (uint32_t i = thread_index(); i < bytes / 4; i += kThreads) words[i] = source[i];
}

// Thread 0 initializes the barrier; everybody may use it afterwards.
KB_DEVICE void start_barrier(Storage& shared) {
  if (thread_index() == 0) {
    mbarrier_init(&shared.bar, 1);
    fence_mbarrier_init_release_cluster();
  }
  bar_sync();
}

// The same, with something in all of the data, which may then be read beside what a copy wrote.
KB_DEVICE void start_filled(Storage& shared) {
  auto* words = reinterpret_cast<uint32_t*>(shared.data);
  for (uint32_t i = thread_index(); i < kBytes / 4; i += kThreads) words[i] = ~0u;
  fence_proxy_async();
  start_barrier(shared);
}

struct Box {
  uint32_t rank;
  int32_t at[4];
  uint32_t offset;   // in Storage::data
  uint32_t bytes;    // to expect
  uint32_t variant;  // of the instruction: 1 with a policy, 2 multicast to rank 0
};

KB_DEVICE void load(void* dst, const TensorMap* map, const Box& box, Mbarrier* bar) {
  const int32_t x = box.at[0], y = box.at[1], z = box.at[2];
  const CachePolicy policy = createpolicy_fractional_l2_evict_first();
  constexpr ClusterMask kFirst = {1};
  if (box.rank == 2) {
    cp_async_bulk_prefetch_tensor_2d_l2_global(map, x, y);
    if (box.variant == 0) cp_async_bulk_tensor_2d_shared_global(dst, map, x, y, bar);
    if (box.variant == 1) cp_async_bulk_tensor_2d_shared_global(dst, map, x, y, bar, policy);
    if (box.variant == 2) cp_async_bulk_tensor_2d_shared_global(dst, map, x, y, bar, kFirst);
    if (box.variant == 3) {
      cp_async_bulk_tensor_2d_shared_global(dst, map, x, y, bar, kFirst, policy);
    }
  } else if (box.rank == 4) {
    const int32_t w = box.at[3];
    if (box.variant == 0) cp_async_bulk_tensor_4d_shared_global(dst, map, x, y, z, w, bar);
    if (box.variant == 1) cp_async_bulk_tensor_4d_shared_global(dst, map, x, y, z, w, bar, policy);
  } else {
    if (box.variant == 0) cp_async_bulk_tensor_3d_shared_global(dst, map, x, y, z, bar);
    if (box.variant == 1) cp_async_bulk_tensor_3d_shared_global(dst, map, x, y, z, bar, policy);
    if (box.variant == 2) cp_async_bulk_tensor_3d_shared_global(dst, map, x, y, z, bar, kFirst);
    if (box.variant == 3) {
      cp_async_bulk_tensor_3d_shared_global(dst, map, x, y, z, bar, kFirst, policy);
    }
  }
}

KB_DEVICE void store(const TensorMap* map, const Box& box, const void* src) {
  const int32_t x = box.at[0], y = box.at[1];
  if (box.rank == 3) return cp_async_bulk_tensor_3d_global_shared(map, x, y, box.at[2], src);
  if (box.variant == 0) return cp_async_bulk_tensor_2d_global_shared(map, x, y, src);
  cp_async_bulk_tensor_2d_global_shared(map, x, y, src, createpolicy_fractional_l2_evict_last());
}

// What a kernel leaves out or does wrong.
enum Fault : uint32_t {
  kRight = 0,
  kNoExpect,
  kNoWait,
  kNoAcquire,
  kNoSyncBeforeAcquire,
  kNoRelease,
  kEarlyWrite,
  kNoCommit,
  kNoFence,
  kSharedMap,
  kEarlyRead,
  kNoReadWait,
  kGroupAlone,  // waits for a load's group before it changes the map, and not for its mbarrier
};

rt::LaunchConfig config(uint32_t ctas = 1) {
  rt::LaunchConfig launch{
      .grid = {ctas, 1, 1}, .threads = kThreads, .shared_bytes = sizeof(Storage)};
  launch.cluster = ctas;
  return launch;
}

}  // namespace

#define RUN(...) return kb::guarded(message, 512, [&] { __VA_ARGS__; })

KB_EXPORT int encode(char* message, const rt::TensorMapTile* tile, TensorMap* map) {
  RUN(*map = rt::encode_tensor_map(*tile));
}
