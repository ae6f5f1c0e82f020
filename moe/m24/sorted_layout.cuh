// Where an expert has many tokens: what the roles of the kernel share.
//
// The tokens' experts are kept by expert, as lists of routes. An item is up to kTokens routes of
// an expert by 256 outputs: it reads its weights once, and each warpgroup has 128 of the outputs.
// Its tokens do not stay: a stage holds a block of K of the weights and of the tokens.
#pragma once

#include "cta_roles.cuh"
#include "gather_routes.cuh"
#include "item_claims.cuh"
#include "item_parts.cuh"
#include "ptx/types.cuh"
#include "weight_stream.cuh"

namespace kb::step::sorted {

inline constexpr uint32_t kItemN = 2;  // blocks of 128 outputs of an item, one a warpgroup
// Of the list of items: experts of one piece, and those of several, whose pieces are smaller.
inline constexpr uint32_t kListParts = 2;
// As many stages as fit beside an item of up to kTokens routes.
template <uint32_t kTokens>
inline constexpr uint32_t kStages = kTokens <= 80 ? 5 : 4;

// Two warpgroups multiply; of the third, one warp loads weights and three gather tokens.
inline constexpr uint32_t kThreads = kMultiplyThreads + 32 + kGatherThreads;
inline constexpr uint32_t kRouteThreads = kThreads - 32;  // all but the load warp
// Of a thread, once the tokens are routed: sums take most of them.
inline constexpr uint32_t kMultiplyRegisters = 224;
inline constexpr uint32_t kLoadRegisters = 56;

// Weights lie in shared memory so that the four outputs that a thread has of a token are
// neighbours: row 8 j + g of 32 holds output 4 g + j, and the instructions take every other group
// of eight rows.
inline constexpr uint32_t kBoxRows = 32;
inline constexpr uint32_t kRowGroup = 8;

// What CTAs share while they run. The calls take turns with the two sets of counts: each sets the
// other one to zero, for the next.
struct alignas(kSector) Count {
  uint32_t routes;
};
struct alignas(kSector) GridState {
  uint32_t barrier;  // bit 31 changes with every call, the others are left at zero
  uint32_t claims;   // set to zero before the barrier
  Count counts[2][kMaxExperts];
};

// A piece of work: a part of an expert's routes, `n_blocks` times 128 outputs, `k_blocks` blocks.
struct Item {
  uint32_t expert;
  uint32_t piece;  // of the expert's routes
  uint32_t n_block, n_blocks;
  uint32_t k_block, k_blocks;
};

// What the warps that multiply need of an item.
template <uint32_t kTokens>
struct ItemRoutes {
  Item item;
  uint32_t rows;  // routes; kNoItem after the last item
  uint32_t tokens[kTokens];
  float weights[kTokens];
};

struct alignas(8) Pair {
  float even, odd;
};

template <uint32_t kTokens>
struct SharedStorage {
  alignas(1024) uint8_t weights[kStages<kTokens>][kItemN][kTileN * kTileK];  // 128-byte swizzle
  alignas(1024) uint8_t codes[kStages<kTokens>][kTokens * kTileK];           // 128-byte swizzle
  alignas(128) float weight_scales[kStages<kTokens>][kItemN][32];            // kScaleBox of each
  Pair scales[kStages<kTokens>][kTokens / 2];
  ItemRoutes<kTokens> items[2];
  Mbarrier full[kStages<kTokens>];  // weights of a stage
  Mbarrier codes_full[kStages<kTokens>];
  Mbarrier empty[kStages<kTokens>];
  Mbarrier item_full[2];
  Mbarrier item_empty[2];
  Mbarrier place_full[kQueue];
  Mbarrier place_empty[kQueue];
  Mbarrier counted;              // the list of items is complete
  Item queue[kQueue];            // that the CTA has claimed; one without blocks ends them
  uint32_t counts[kMaxExperts];  // routes of each expert
  uint32_t starts[kListParts][kMaxExperts + 1];  // of an expert's pieces in a part of the list
  uint32_t warp_sums[kListParts][kMultiplyWarps];
};

// How a call is cut into items.
struct Cut {
  Parts coarse, fine;
  uint32_t fine_pieces;  // of the list, the last ones: cut finely
  uint32_t covered;      // experts whose first routes are a CTA's first item in any case
};

struct Arguments {
  TensorMap weights;        // of e4m3 [4, experts * n / 4, k], every fourth row
  TensorMap weight_scales;  // of float [experts * n / 128 * k / 128]
  const bf16* hidden;       // [m, k]
  const float* gating;      // [m, experts]
  float* output;            // [m, n]
  Route* routes;            // [experts, m]
  e4m3* codes;              // [m, k]
  float* scales;            // [m, k / 128]
  GridState* grid;
  uint32_t m, n, k, experts, topk;
  Cut cut;
  uint32_t pace;  // stages on their way while the CTA routes
  bool renormalize;
  float softcap;
};

}  // namespace kb::step::sorted
