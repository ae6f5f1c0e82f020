// What no document settles about warps, clusters and tensor copies: one question for each kernel.
#include "parity.cuh"
#include "ptx/cluster.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"
#include "wait.cuh"

// ---- The lane that is elected, for masks of the input

KB_GLOBAL void KB_LAUNCH_BOUNDS(32, 1)
    elected_lanes(const uint32_t* in, uint32_t* out, uint32_t count) {
  const uint32_t lane = ptx::lane_index();
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t members = in[i];
    if ((members >> lane & 1) != 0 && ptx::elect_sync(members)) out[i] = lane;
    ptx::bar_warp_sync();
  }
}
PARITY_CASE(elected_lanes) {
  rt::launch(elected_lanes, {.grid = {1, 1, 1}, .threads = 32, .shared_bytes = 0}, test.in,
             test.out, static_cast<uint32_t>(test.in_bytes / 4));
}

// ---- Addresses of a word in the shared memory of each CTA of a cluster

struct Word {
  alignas(16) uint32_t unused[3];
  uint32_t word;
};

KB_GLOBAL void KB_LAUNCH_BOUNDS(32, 1) cluster_addresses(uint32_t* out) {
  Word& shared = shared_storage<Word>();
  if (ptx::thread_index() != 0) return;
  uint32_t* row = out + ptx::cluster_ctarank() * 5;
  row[0] = ptx::smem_address(&shared.word);
  for (uint32_t rank = 0; rank < 4; ++rank) row[1 + rank] = ptx::mapa(&shared.word, rank).bits;
}
PARITY_CASE(cluster_addresses) {
  rt::launch(cluster_addresses,
             {.grid = {4, 1, 1}, .threads = 32, .shared_bytes = sizeof(Word), .cluster = 4},
             test.out);
}

// ---- A 128-byte swizzled box at 128 bytes past a multiple of 1024

inline constexpr uint32_t kBoxRows = 32;
inline constexpr uint32_t kBoxWords = kBoxRows * 32;

struct Shifted {
  alignas(1024) uint32_t words[kBoxWords + 256];
  Mbarrier bar;
};

KB_GLOBAL void KB_LAUNCH_BOUNDS(32, 1) shifted_box(KB_GRID_CONSTANT(TensorMap) map, uint32_t* out) {
  Shifted& shared = shared_storage<Shifted>();
  const uint32_t lane = ptx::thread_index();
  if (lane == 0) {
    ptx::mbarrier_init(&shared.bar, 1);
    ptx::fence_mbarrier_init_release_cluster();
  }
  ptx::bar_sync();
  for (uint32_t shift = 0; shift < 8; ++shift) {
    uint32_t* box = shared.words + 32 * shift;
    if (lane == 0) {
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, &shared.bar, 4 * kBoxWords);
      ptx::cp_async_bulk_tensor_2d_shared_global(box, &map, 0, 0, &shared.bar);
    }
    mbarrier_wait_parity(&shared.bar, shift % 2);
    for (uint32_t i = lane; i < kBoxWords; i += 32) out[shift * kBoxWords + i] = box[i];
    ptx::fence_proxy_async(ptx::space_shared_cta);
    ptx::bar_sync();
  }
}
PARITY_CASE(shifted_box) {
  const TensorMap map = rt::encode_tensor_map({.element = TensorMapElement::kU8,
                                               .rank = 2,
                                               .address = test.in,
                                               .dims = {128, kBoxRows},
                                               .strides = {128},
                                               .box = {128, kBoxRows},
                                               .swizzle = TensorMapSwizzle::k128B});
  rt::launch(shifted_box, {.grid = {1, 1, 1}, .threads = 32, .shared_bytes = sizeof(Shifted)}, map,
             test.out);
}

// ---- One thread fences for all that wrote a tile, then stores it; many tiles, each of new values

inline constexpr uint32_t kWriters = 256;
inline constexpr uint32_t kTiles = 256;
inline constexpr uint32_t kTileWords = 4096;

struct Tile {
  alignas(128) uint32_t words[kTileWords];
};

KB_GLOBAL void KB_LAUNCH_BOUNDS(kWriters, 1) fence_by_one(const uint32_t* in, uint32_t* out) {
  Tile& shared = shared_storage<Tile>();
  const uint32_t thread = ptx::thread_index();
  for (uint32_t tile = 0; tile < kTiles; ++tile) {
    for (uint32_t i = thread; i < kTileWords; i += kWriters) shared.words[i] = in[tile] + i;
    ptx::bar_sync();
    if (thread == 0) {
      ptx::fence_proxy_async(ptx::space_shared_cta);
      ptx::cp_async_bulk_global_shared(out + tile * kTileWords, shared.words, sizeof(Tile));
      ptx::cp_async_bulk_commit_group();
      ptx::cp_async_bulk_wait_group<0>();
    }
    ptx::bar_sync();
  }
}
PARITY_CASE(fence_by_one) {
  rt::launch(fence_by_one, {.grid = {1, 1, 1}, .threads = kWriters, .shared_bytes = sizeof(Tile)},
             test.in, test.out);
}
