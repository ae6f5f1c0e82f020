// A barrier of all CTAs of a grid that are resident at once (a cooperative launch).
#pragma once

#include "ptx/red.cuh"
#include "ptx/warp.cuh"
#include "wait.cuh"

namespace kb {

// One thread of each CTA, after its others have come. The CTAs' shares add up to bit 31: it changes
// when all have come, and nothing has to be set back. `before` is the word at the kernel's start.
KB_DEVICE void grid_barrier(uint32_t* word, uint32_t before) {
  constexpr uint32_t kTurn = 1u << 31;
  const uint32_t share = ptx::cta_index().x == 0 ? kTurn - (ptx::cta_count().x - 1) : 1;
  ptx::red_release_gpu_global_add_u32(word, share);
  global_wait_changed(word, before, kTurn);
}

}  // namespace kb
