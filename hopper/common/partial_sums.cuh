// Sums of a part of K, from a warp to the same warp of another CTA, through device memory.
#pragma once

#include "ptx/red.cuh"
#include "ptx/warp.cuh"
#include "wait.cuh"

namespace kb {

// Four sums of a thread, in the order of its registers.
struct alignas(16) Sums {
  float values[4];
};

// kWarps warps of a CTA leave up to kCount sums a thread in a slot.
template <uint32_t kWarps, uint32_t kCount>
struct PartialSums {
  static constexpr uint32_t kSlotSums = kWarps * (kCount / 4) * 32;  // of Sums
  static constexpr uint32_t kSlotFlags = kWarps;

  Sums* sums;       // [slots][kWarps][kCount / 4][32]
  uint32_t* ready;  // [slots][kWarps]: slots that are filled, zero between calls
  friend bool operator==(const PartialSums&, const PartialSums&) = default;

  KB_DEVICE Sums* of_thread(uint32_t slot) const {
    return sums + uint64_t{slot * kWarps + ptx::warp_index()} * (kCount / 4 * 32) +
           ptx::lane_index();
  }
  KB_DEVICE uint32_t* flag(uint32_t slot) const {
    return &ready[slot * kWarps + ptx::warp_index()];
  }

  template <int kTotal>
  KB_DEVICE void leave(const float (&own)[kTotal], uint32_t slot) const {
    Sums* to = of_thread(slot);
#pragma unroll
    for (uint32_t i = 0; i < kTotal; i += 4) {
      to[i / 4 * 32] = {{own[i], own[i + 1], own[i + 2], own[i + 3]}};
    }
    ptx::bar_warp_sync();
    if (ptx::lane_index() != 0) return;
    ptx::red_release_gpu_global_add_u32(flag(slot), 1);
  }

  // Waits for them. Every slot is added once.
  template <int kTotal>
  KB_DEVICE void add(float (&own)[kTotal], uint32_t slot) const {
    uint32_t* filled = flag(slot);
    global_wait_at_least(filled, 1);
    ptx::bar_warp_sync();
    if (ptx::lane_index() == 0) *filled = 0;
    const Sums* from = of_thread(slot);
#pragma unroll
    for (uint32_t i = 0; i < kTotal; i += 4) {
      const Sums added = from[i / 4 * 32];
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) own[i + j] += added.values[j];
    }
  }
};

}  // namespace kb
