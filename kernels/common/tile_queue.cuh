// Work tiles that one warp resolves ahead of the others, handed over through a ring of slots:
//
//   scheduler warp    reserve_slot; publish_tile; advance
//   every other       take_tile; work on it; release_tile; advance
#pragma once

#include "pipeline.cuh"
#include "ptx/warp.cuh"
#include "wait.cuh"

namespace kb {

// In shared memory.
template <typename Tile, uint32_t kSlots>
struct TileQueue {
  Tile slots[kSlots];
  Mbarrier full[kSlots];   // its phase is complete after 1 arrival of who publishes
  Mbarrier empty[kSlots];  // after 1 arrival of each warp that takes tiles
};

// By one thread, before a CTA barrier.
template <typename Tile, uint32_t kSlots>
KB_DEVICE void init_tile_queue(TileQueue<Tile, kSlots>& queue, uint32_t taking_warps) {
  for (uint32_t s = 0; s < kSlots; ++s) {
    ptx::mbarrier_init(&queue.full[s], 1);
    ptx::mbarrier_init(&queue.empty[s], taking_warps);
  }
}

// By every thread of the warp that fills slots: waits until all are done with what is in this one.
template <typename Tile, uint32_t kSlots>
KB_DEVICE void reserve_slot(const TileQueue<Tile, kSlots>& queue, PipelineState<kSlots> state) {
  mbarrier_wait_parity(&queue.empty[state.stage], state.phase ^ 1);
}

// By the converged warp, after reserve_slot.
template <typename Tile, uint32_t kSlots>
KB_DEVICE void publish_tile(TileQueue<Tile, kSlots>& queue, PipelineState<kSlots> state,
                            const Tile& tile) {
  ptx::bar_warp_sync();
  if (ptx::elect_sync()) {
    queue.slots[state.stage] = tile;
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &queue.full[state.stage]);
  }
  ptx::bar_warp_sync();
}

// By every thread of a warp that takes tiles: waits until the slot is filled.
template <typename Tile, uint32_t kSlots>
KB_DEVICE Tile take_tile(const TileQueue<Tile, kSlots>& queue, PipelineState<kSlots> state) {
  mbarrier_wait_parity(&queue.full[state.stage], state.phase);
  return queue.slots[state.stage];
}

// By the converged warp, when it is done with the tile: the slot may be filled again.
template <typename Tile, uint32_t kSlots>
KB_DEVICE void release_tile(TileQueue<Tile, kSlots>& queue, PipelineState<kSlots> state) {
  ptx::bar_warp_sync();
  if (ptx::elect_sync()) {
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &queue.empty[state.stage]);
  }
  ptx::bar_warp_sync();
}

}  // namespace kb
