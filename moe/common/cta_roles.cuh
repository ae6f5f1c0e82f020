// Who does what in the steps that are one kernel: tiles, warps, named barriers.
#pragma once

#include "fp8_block.cuh"

namespace kb {

inline constexpr uint32_t kTileN = 128;  // outputs of a stage
inline constexpr uint32_t kTileK = 128;
inline constexpr uint32_t kPartN = 64;  // outputs of an instruction
static_assert(kTileK == kFp8Block && kTileN == kFp8Block, "a stage has one scale");

// Two warpgroups multiply, one warp loads weights, three gather tokens, four list the items. A
// kernel may have no warps of the last role.
inline constexpr uint32_t kMultiplyWarps = 8;
inline constexpr uint32_t kMultiplyThreads = 32 * kMultiplyWarps;
inline constexpr uint32_t kLoadWarp = kMultiplyWarps;
inline constexpr uint32_t kGatherWarp = kLoadWarp + 1;  // the first one
inline constexpr uint32_t kGatherWarps = 3;
inline constexpr uint32_t kGatherThreads = 32 * kGatherWarps;
inline constexpr uint32_t kListWarp = kGatherWarp + kGatherWarps;
inline constexpr uint32_t kListWarps = 4;
inline constexpr uint32_t kListThreads = 32 * kListWarps;

// Named barriers: the CTA has routed its tokens, all CTAs have; the warps that list, that gather.
inline constexpr uint32_t kRouteBarrier = 1;
inline constexpr uint32_t kGridBarrier = 2;
inline constexpr uint32_t kListBarrier = 3;
inline constexpr uint32_t kGatherBarrier = 4;

}  // namespace kb
