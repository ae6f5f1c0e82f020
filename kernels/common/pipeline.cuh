// Position in a ring of stages. Each side of a pipeline keeps one and advances it after each use.
//
// A side that waits for the other's n-th completion waits for `phase`. The side that goes first
// (the producer, whose stages start empty) waits for `phase ^ 1`: on a new barrier parity 1 has
// completed (PTX ISA 9.1, 9.7.13.15).
#pragma once

#include "kb.cuh"

namespace kb {

template <uint32_t kStages>
struct PipelineState {
  static_assert(kStages > 0, "a ring has at least one stage");

  uint32_t stage = 0;
  uint32_t phase = 0;  // parity of the use of `stage` that comes next

  KB_DEVICE void advance() {
    ++stage;
    if (stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

}  // namespace kb
