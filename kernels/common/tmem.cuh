// Tensor memory: sizes and addresses. An address is lane << 16 | column (PTX ISA 9.1, 9.7.16.1).
#pragma once

#include "kb.cuh"

namespace kb {

inline constexpr uint32_t kTmemLanes = 128;
inline constexpr uint32_t kTmemMaxColumns = 512;

// What to allocate for `columns`: a power of two from 32.
KB_HOST_DEVICE constexpr uint32_t tmem_allocation(uint32_t columns) {
  uint32_t size = 32;
  while (size < columns) size *= 2;
  return size;
}

// The address `lane` further down. A warp reaches the lanes from 32 * (warp % 4) only.
KB_HOST_DEVICE constexpr uint32_t tmem_lane(uint32_t address, uint32_t lane) {
  return address + (lane << 16);
}

}  // namespace kb
