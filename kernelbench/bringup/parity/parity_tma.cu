// Copies by the TMA: boxes and bytes, loads and stores, hints, tensor maps changed on the device.
#include "parity.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tensormap.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"
#include "wait.cuh"

using ptx::scope_cta;
using ptx::sem_release;
using ptx::space_global;
using ptx::space_shared_cta;

inline constexpr uint32_t kThreads = 128;
inline constexpr uint32_t kDataWords = 1024;  // where the input's data starts
inline constexpr uint32_t kTileBytes = 32768;

// The first words of the input: a tensor, how it is cut, and the corners of boxes.
struct Header {
  uint32_t element, rank;
  uint32_t dims[4];
  uint32_t strides[3];
  uint32_t box[4];
  uint32_t swizzle;
  uint32_t box_bytes;
  uint32_t hint;  // form of the copy: 0 plain, 1 evict first, 2 evict last
  uint32_t count;
  int32_t corners[64][4];
};

inline const Header& header_of(const uint32_t* words) {
  return *reinterpret_cast<const Header*>(words);
}

inline TensorMap map_of(const Header& header, const void* address) {
  rt::TensorMapTile tile{};
  tile.element = static_cast<TensorMapElement>(header.element);
  tile.rank = header.rank;
  tile.address = address;
  for (int i = 0; i < 4; ++i) tile.dims[i] = header.dims[i];
  for (int i = 0; i < 3; ++i) tile.strides[i] = header.strides[i];
  for (int i = 0; i < 4; ++i) tile.box[i] = header.box[i];
  tile.swizzle = static_cast<TensorMapSwizzle>(header.swizzle);
  return rt::encode_tensor_map(tile);
}

struct SharedStorage {
  alignas(1024) uint32_t tile[kTileBytes / 4];
  alignas(128) TensorMap map;
  Mbarrier bar;
};
inline constexpr uint32_t kSharedBytes = sizeof(SharedStorage);

KB_DEVICE void start(SharedStorage& shared) {
  if (ptx::thread_index() == 0) {
    ptx::mbarrier_init(&shared.bar, 1);
    ptx::fence_mbarrier_init_release_cluster();
  }
  ptx::bar_sync();
}

// Fills the tile by ordinary stores, and makes them visible to copies.
template <typename Value>
KB_DEVICE void fill(SharedStorage& shared, uint32_t words, Value value) {
  for (uint32_t i = ptx::thread_index(); i < words; i += kThreads) shared.tile[i] = value(i);
  ptx::fence_proxy_async(space_shared_cta);
  ptx::bar_sync();
}

KB_DEVICE void dump(const SharedStorage& shared, uint32_t words, uint32_t* out) {
  for (uint32_t i = ptx::thread_index(); i < words; i += kThreads) out[i] = shared.tile[i];
  ptx::bar_sync();
}

KB_DEVICE void load_box(SharedStorage& shared, const TensorMap* map, const Header& header,
                        const int32_t (&corner)[4]) {
  const auto [x, y, z, w] = corner;
  const CachePolicy policy = header.hint == 1 ? ptx::createpolicy_fractional_l2_evict_first()
                                              : ptx::createpolicy_fractional_l2_evict_last();
  if (header.rank == 4 && header.hint != 0) {
    ptx::cp_async_bulk_tensor_4d_shared_global(shared.tile, map, x, y, z, w, &shared.bar, policy);
  } else if (header.rank == 4) {
    ptx::cp_async_bulk_tensor_4d_shared_global(shared.tile, map, x, y, z, w, &shared.bar);
  } else if (header.rank == 3 && header.hint != 0) {
    ptx::cp_async_bulk_tensor_3d_shared_global(shared.tile, map, x, y, z, &shared.bar, policy);
  } else if (header.rank == 3) {
    ptx::cp_async_bulk_tensor_3d_shared_global(shared.tile, map, x, y, z, &shared.bar);
  } else if (header.hint != 0) {
    ptx::cp_async_bulk_tensor_2d_shared_global(shared.tile, map, x, y, &shared.bar, policy);
  } else {
    ptx::cp_async_bulk_tensor_2d_shared_global(shared.tile, map, x, y, &shared.bar);
  }
}

// ---- Loads: each box lands on a background of its own

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1)
    tensor_loads(KB_GRID_CONSTANT(TensorMap) map, const uint32_t* in, uint32_t* out) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const Header& header = *reinterpret_cast<const Header*>(in);
  const uint32_t words = header.box_bytes / 4;
  start(shared);
  for (uint32_t i = 0; i < header.count; ++i) {
    fill(shared, words, [i](uint32_t) { return 0xee00 + i; });
    if (ptx::thread_index() == 0) {
      ptx::prefetch_tensormap(&map);
      if (header.rank == 2) {
        ptx::cp_async_bulk_prefetch_tensor_2d_l2_global(&map, header.corners[i][0],
                                                        header.corners[i][1]);
      }
      ptx::mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.bar, header.box_bytes);
      load_box(shared, &map, header, header.corners[i]);
    }
    mbarrier_wait_parity(&shared.bar, i % 2);
    dump(shared, words, out + i * words);
  }
}
PARITY_CASE(tensor_loads) {
  const TensorMap map = map_of(header_of(test.host), test.in + kDataWords);
  rt::launch(tensor_loads, {.grid = {1, 1, 1}, .threads = kThreads, .shared_bytes = kSharedBytes},
             map, test.in, test.out);
}

// ---- Stores of boxes from the input's data into the output

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1)
    tensor_stores(KB_GRID_CONSTANT(TensorMap) map, const uint32_t* in) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const Header& header = *reinterpret_cast<const Header*>(in);
  const uint32_t words = header.box_bytes / 4;
  const bool issuer = ptx::thread_index() == 0;
  start(shared);
  for (uint32_t i = 0; i < header.count; ++i) {
    fill(shared, words, [=](uint32_t word) { return in[kDataWords + i * words + word]; });
    if (issuer) {
      const auto [x, y, z, w] = header.corners[i];
      if (header.rank == 3) {
        ptx::cp_async_bulk_tensor_3d_global_shared(&map, x, y, z, shared.tile);
      } else if (header.hint != 0) {
        ptx::cp_async_bulk_tensor_2d_global_shared(&map, x, y, shared.tile,
                                                   ptx::createpolicy_fractional_l2_evict_first());
      } else {
        ptx::cp_async_bulk_tensor_2d_global_shared(&map, x, y, shared.tile);
      }
      ptx::cp_async_bulk_commit_group();
      ptx::cp_async_bulk_wait_group_read<0>();
    }
    ptx::bar_sync();
  }
  if (issuer) ptx::cp_async_bulk_wait_group<0>();
}
PARITY_CASE(tensor_stores) {
  const TensorMap map = map_of(header_of(test.host), test.out);
  rt::launch(tensor_stores, {.grid = {1, 1, 1}, .threads = kThreads, .shared_bytes = kSharedBytes},
             map, test.in);
}

// ---- Plain bytes, in and out, with and without hints

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) bulk_copies(const uint32_t* in, uint32_t* out) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  start(shared);
  fill(shared, 2048, [](uint32_t i) { return ~i; });
  if (ptx::thread_index() == 0) {
    const CachePolicy first = ptx::createpolicy_fractional_l2_evict_first();
    ptx::cp_async_bulk_prefetch_l2_global(in, 4096);
    ptx::mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.bar, 16 + 1008 + 4096);
    ptx::cp_async_bulk_shared_global(shared.tile, in, 16, &shared.bar);
    ptx::cp_async_bulk_shared_global(shared.tile + 8, in + 4, 1008, &shared.bar, first);
    ptx::cp_async_bulk_shared_global(shared.tile + 512, in + 512, 4096, &shared.bar);
    mbarrier_wait_parity(&shared.bar, 0);
    ptx::cp_async_bulk_global_shared(out, shared.tile, 4096);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_global_shared(out + 1028, shared.tile + 1024, 4080, first);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read<1>();
    ptx::cp_async_bulk_wait_group<0>();
  }
}
PARITY_CASE(bulk_copies) {
  rt::launch(bulk_copies, {.grid = {1, 1, 1}, .threads = kThreads, .shared_bytes = kSharedBytes},
             test.in, test.out);
}

// ---- A map changed on the device: field, value, and whether in shared or global memory

enum Field : uint32_t {
  kNothing,
  kAddress,
  kRank,
  kBox0,
  kBox1,
  kDim0,
  kDim1,
  kStride0,
  kElementStride1,
  kElement,
  kInterleave,
  kSwizzle,
  kFill,
};

template <typename Space>
KB_DEVICE void replace(Space space, TensorMap* map, uint32_t field, uint32_t value,
                       const uint32_t* in) {
  switch (field) {
    case kAddress:
      return ptx::tensormap_replace_global_address(space, map, in + kDataWords + value / 4);
    case kRank:
      return ptx::tensormap_replace_rank(space, map, value);
    case kBox0:
      return ptx::tensormap_replace_box_dim<0>(space, map, value);
    case kBox1:
      return ptx::tensormap_replace_box_dim<1>(space, map, value);
    case kDim0:
      return ptx::tensormap_replace_global_dim<0>(space, map, value);
    case kDim1:
      return ptx::tensormap_replace_global_dim<1>(space, map, value);
    case kStride0:
      return ptx::tensormap_replace_global_stride<0>(space, map, value);
    case kElementStride1:
      return ptx::tensormap_replace_element_stride<1>(space, map, value);
    case kElement:
      return ptx::tensormap_replace_elemtype<TensorMapElement::kU16>(space, map);
    case kInterleave:
      return ptx::tensormap_replace_interleave_layout<TensorMapInterleave::kNone>(space, map);
    case kSwizzle:
      return ptx::tensormap_replace_swizzle_mode<TensorMapSwizzle::k128B>(space, map);
    case kFill:
      return ptx::tensormap_replace_fill_mode<TensorMapFill::kNan>(space, map);
    default:
      return;
  }
}

struct Change {
  uint32_t field, value;
  uint32_t global;  // whether the map is changed where it is used
};
inline constexpr uint32_t kChangeWord = 512;

// `map` is encoded by the host; `slot` is the map in global memory that the copies use.
KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1)
    changed_map(KB_GRID_CONSTANT(TensorMap) map, TensorMap* slot, const uint32_t* in,
                uint32_t* out) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const Header& header = *reinterpret_cast<const Header*>(in);
  const Change& change = *reinterpret_cast<const Change*>(in + kChangeWord);
  const uint32_t words = header.box_bytes / 4;
  start(shared);
  if (change.global != 0) {
    if (ptx::thread_index() == 0) {
      *slot = map;
      replace(space_global, slot, change.field, change.value, in);
      ptx::fence_proxy_tensormap_generic_release_gpu();
    }
  } else if (ptx::warp_index() == 0) {
    if (ptx::lane_index() == 0) {
      shared.map = map;
      replace(space_shared_cta, &shared.map, change.field, change.value, in);
    }
    ptx::bar_warp_sync();
    ptx::tensormap_cp_fenceproxy(slot, &shared.map);
  }
  ptx::bar_sync();
  for (uint32_t i = 0; i < header.count; ++i) {
    fill(shared, words, [i](uint32_t) { return 0xee00 + i; });
    if (ptx::thread_index() == 0) {
      ptx::fence_proxy_tensormap_generic_acquire_gpu(slot);
      ptx::mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.bar, header.box_bytes);
      load_box(shared, slot, header, header.corners[i]);
    }
    mbarrier_wait_parity(&shared.bar, i % 2);
    dump(shared, words, out + i * words);
  }
}
PARITY_CASE(changed_map) {
  // The header's rank is what the copies use; the encoded one may be higher.
  Header encoded = header_of(test.host);
  if (test.host[kChangeWord] == kRank) encoded.rank = 3;
  const TensorMap map = map_of(encoded, test.in + kDataWords);
  auto* slot = static_cast<TensorMap*>(rt::device_malloc(sizeof(TensorMap)));
  rt::launch(changed_map, {.grid = {1, 1, 1}, .threads = kThreads, .shared_bytes = kSharedBytes},
             map, slot, test.in, test.out);
  rt::stream_synchronize({});
  rt::device_free(slot);
}
