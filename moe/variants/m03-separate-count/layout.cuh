// Layout: where each expert's rows start once routes are sorted by expert. One thread adds up.
#pragma once

#include "ptx/warp.cuh"

namespace kb::step::layout {

inline constexpr uint32_t kThreads = 32;

struct Arguments {
  const uint32_t* counts;  // [experts]
  uint32_t* offsets;       // [experts + 1]
  uint32_t* next_rows;     // [experts]: the next free row of each, its first one to begin with
  uint32_t experts;
};

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) lay_out_experts(KB_GRID_CONSTANT(Arguments) args) {
  if (ptx::thread_index() != 0) return;
  uint32_t offset = 0;
  for (uint32_t expert = 0; expert < args.experts; ++expert) {
    args.offsets[expert] = offset;
    args.next_rows[expert] = offset;
    offset += args.counts[expert];
  }
  args.offsets[args.experts] = offset;
}

}  // namespace kb::step::layout
