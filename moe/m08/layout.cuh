// What the roles of the kernel share: sizes, shared memory, arguments.
#pragma once

#include "cta_roles.cuh"
#include "first_items.cuh"
#include "item_list.cuh"
#include "ptx/types.cuh"
#include "token_data.cuh"

namespace kb::step {

inline constexpr uint32_t kSlots = 16;  // blocks of K that an item's tokens stay resident for
inline constexpr uint32_t kThreads = kMultiplyThreads + 32 + kGatherThreads;  // none lists
inline constexpr uint32_t kRouteThreads = kThreads - 32;  // all but the load warp

// Named barriers: all that route, the warps that multiply, the warps that gather.
inline constexpr uint32_t kRouteBarrier = 1;
inline constexpr uint32_t kMultiplyBarrier = 2;
inline constexpr uint32_t kGatherBarrier = 3;

// As many stages as fit beside the resident tokens.
template <uint32_t kTokens>
inline constexpr uint32_t kStages = kTokens == 16   ? 11
                                    : kTokens == 32 ? 9
                                                    : 5;

// What the warps that multiply need of an item.
template <uint32_t kTokens>
struct ItemTokens {
  Item item;
  uint32_t rows;  // tokens; kNoItem after the last item
  uint32_t tokens[kTokens];
  float weights[kTokens];  // of the expert in the token's sum
};

template <uint32_t kTokens>
struct SharedStorage {
  alignas(1024) uint8_t weights[kStages<kTokens>][kTileN * kTileK];  // 128-byte swizzle
  alignas(1024) uint8_t codes[kSlots][kTokens * kTileK];             // 128-byte swizzle
  float scales[kSlots][kTokens];
  float weight_scales[kStages<kTokens>];
  ItemTokens<kTokens> items[2];
  Mbarrier full[kStages<kTokens>];  // weights of a stage
  Mbarrier empty[kStages<kTokens>];
  Mbarrier slot_full[kSlots];  // tokens of a block
  Mbarrier slot_empty[kSlots];
  Mbarrier item_full[2];
  Mbarrier item_empty[2];
  Mbarrier counted;                  // the list of items is complete
  uint32_t counts[kMaxExperts];      // tokens of each expert
  uint32_t starts[kMaxExperts + 1];  // of an expert's pieces in the list
  uint32_t warp_sums[kMultiplyWarps];
  uint32_t matches[kGatherWarps];
  uint32_t idle, idle_below;  // CTAs without a first item; with a lower index
};

// How a call is cut into items.
struct Cut {
  Parts coarse;
  uint32_t covered;  // experts whose first tokens are a CTA's first item in any case
};

struct Arguments {
  TensorMap weights;           // of e4m3 [experts * n, k]
  const bf16* hidden;          // [m, k]
  const float* gating;         // [m, experts]
  const float* weight_scales;  // [experts, n / 128, k / 128]
  float* output;               // [m, n]
  ExpertIds* ids;              // [m]
  float* expert_weights;       // [experts, m], where the token has the expert
  e4m3* codes;                 // [m, k]
  float* scales;               // [m, k / 128]
  uint32_t* barrier;           // bit 31 changes with every call, the others are left at zero
  uint32_t m, n, k, experts, topk;
  Cut cut;
  uint32_t pace;  // stages on their way while the CTA routes
  bool renormalize;
  float softcap;
};

}  // namespace kb::step
