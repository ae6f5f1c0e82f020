// A ring of bytes for tokens in shared memory. A slot holds what the width of its tile asks for, so
// that narrow tiles have as many bytes on their way as wide ones, and tiles of any width follow
// each other.
#pragma once

#include "pipeline.cuh"

namespace kb {

// Where the next slot is: the same on both sides.
template <uint32_t kBytes, uint32_t kSlots>
struct TokenRing {
  uint32_t offset = 0;
  PipelineState<kSlots> slot;

  // Skips the end of the ring if it is too short.
  KB_DEVICE uint32_t skip(uint32_t bytes) {
    if (offset + bytes <= kBytes) return 0;
    const uint32_t skipped = kBytes - offset;
    offset = 0;
    return skipped;
  }
  KB_DEVICE void advance(uint32_t bytes) {
    offset += bytes;
    slot.advance();
  }
};

}  // namespace kb
