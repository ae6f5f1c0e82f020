// What passes from CTA to CTA of a token, and how it lies in memory.
#pragma once

#include "fused_moe.cuh"
#include "kb.cuh"

namespace kb {

// Written in whole sectors of 32 bytes: of a sector written in part the L2 has to fetch the rest,
// and who reads it waits for memory.
inline constexpr uint32_t kSector = 32;

// A token's experts, two in a word, the lower half first.
inline constexpr uint32_t kNoExpert = 0xffff;
struct alignas(16) ExpertIds {
  uint32_t words[kMaxTopk / 2];
};
struct alignas(64) TokenRoutes {
  ExpertIds ids;
  uint32_t padding[4];
  float weights[kMaxTopk];  // of the experts in the token's sum
};
// The scale of a token's block of 128 values.
struct alignas(kSector) SectorScale {
  float copies[kSector / sizeof(float)];
};

// What a thread loads or stores at once.
struct alignas(16) Vector {
  uint32_t words[4];
};

}  // namespace kb
