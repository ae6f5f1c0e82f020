// What every bulk copy checks when it is issued: alignment, sizes and its barrier (PTX ISA 9.1,
// 9.7.9).
#pragma once

#include "core.hpp"
#include "tma_box.hpp"

namespace kb::emu {

inline constexpr uint32_t kBulkAlignment = 16;
inline constexpr uint32_t kBoxAlignment = 128;

// The one part of shared memory that a plain copy takes, as Box::each_part.
inline auto whole(uint32_t offset, uint32_t bytes) {
  return [=](const auto& each) { each(offset, bytes); };
}

// Who accesses memory for the running thread when no clocks are kept.
Actor issuer(Pc pc, const char* what);
void check_aligned(uint64_t value, uint32_t alignment, Pc pc, const char* what, const char* which);
void check_bulk(uint32_t shared_offset, const void* global, uint32_t bytes, Pc pc,
                const char* what);
// The executing CTA's shared memory.
void check_own(const SharedPlace& place, Pc pc, const char* what);
// What the hardware refuses by a trap, and memory that is nobody's.
void check_box(const Box& box, bool writing, Pc pc, const char* what);

}  // namespace kb::emu
