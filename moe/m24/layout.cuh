// What the roles of the kernel share: sizes, shared memory, arguments. Its warps: cta_roles.cuh.
#pragma once

#include "cta_roles.cuh"
#include "item_claims.cuh"
#include "ptx/types.cuh"
#include "token_data.cuh"
#include "weight_stream.cuh"

namespace kb::step {

inline constexpr uint32_t kSlots = 16;  // blocks of K that an item's tokens stay resident for
inline constexpr uint32_t kThreads = kMultiplyThreads + 32 + kGatherThreads + kListThreads;
inline constexpr uint32_t kRouteThreads = kThreads - 32;  // all but the load warp
inline constexpr uint32_t kRouteWarps = kRouteThreads / 32;

// As many stages as fit beside the resident tokens.
template <uint32_t kTokens>
inline constexpr uint32_t kStages = kTokens == 16   ? 11
                                    : kTokens == 32 ? 9
                                                    : 5;

template <uint32_t kTokens>
struct SharedStorage {
  alignas(1024) uint8_t weights[kStages<kTokens>][kTileN * kTileK];  // 128-byte swizzle
  alignas(1024) uint8_t codes[kSlots][kTokens * kTileK];             // 128-byte swizzle
  alignas(128) float weight_scales[kStages<kTokens>][32];            // kScaleBox of each
  float scales[kSlots][kTokens];
  ItemTokens<kTokens> items[2];
  Mbarrier full[kStages<kTokens>];  // weights of a stage
  Mbarrier empty[kStages<kTokens>];
  Mbarrier slot_full[kSlots];  // tokens of a block
  Mbarrier slot_empty[kSlots];
  Mbarrier item_full[2];
  Mbarrier item_empty[2];
  Mbarrier place_full[kQueue];
  Mbarrier place_empty[kQueue];
  Mbarrier counted;                  // the list of items is complete
  uint32_t places[kQueue];           // that the CTA has claimed; kNoItem ends them
  uint32_t counts[kMaxExperts];      // tokens of each expert
  uint32_t starts[kMaxExperts + 1];  // of an expert's pieces in the list
  uint32_t warp_sums[kListWarps];
  uint32_t matches[kGatherWarps];
  uint32_t idle, idle_below;  // CTAs without a first item; with a lower index
  bool crowded;               // two listed pieces or more of an expert, on average
};

// What CTAs share while they run.
struct alignas(kSector) GridState {
  uint32_t barrier;  // bit 31 changes with every call, the others are left at zero
  uint32_t claims;   // set to zero before the barrier
};

// How a call is cut into items.
struct Cut {
  Parts coarse, fine;
  Parts crowded;         // instead of fine, where experts are crowded
  Parts thirds;          // instead of those, where they are too many for the idle CTAs
  uint32_t fine_pieces;  // of the list, the last ones: cut finely
  uint32_t covered;      // experts whose first tokens are a CTA's first item in any case
  uint32_t ahead;        // stages of weights on their way, once the first ones are
};

struct Arguments {
  TensorMap weights;        // of e4m3 [experts * n, k]
  TensorMap weight_scales;  // of float [experts * n / 128 * k / 128]
  const bf16* hidden;       // [m, k]
  const float* gating;      // [m, experts]
  float* output;            // [m, n]
  TokenRoutes* routes;      // [m]
  e4m3* codes;              // [m, k]
  SectorScale* scales;      // [m, k / 128]
  GridState* grid;
  uint32_t m, n, k, experts, topk;
  Cut cut;
  uint32_t pace;  // stages on their way while the CTA routes
  bool renormalize;
  float softcap;
};

}  // namespace kb::step
