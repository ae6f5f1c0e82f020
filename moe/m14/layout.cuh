// What the roles of the kernel share: sizes, shared memory, arguments.
#pragma once

#include "fp8_block.cuh"
#include "fused_moe.cuh"
#include "ptx/types.cuh"

namespace kb::step {

inline constexpr uint32_t kTileN = 128;  // outputs of a stage
inline constexpr uint32_t kTileK = 128;
inline constexpr uint32_t kPartN = 64;  // outputs of an instruction
inline constexpr uint32_t kSlots = 16;  // blocks of K that an item's tokens stay resident for
static_assert(kTileK == kFp8Block && kTileN == kFp8Block, "a stage has one scale");

// Two warpgroups multiply, one warp loads weights, three gather tokens, four list the items.
inline constexpr uint32_t kMultiplyWarps = 8;
inline constexpr uint32_t kMultiplyThreads = 32 * kMultiplyWarps;
inline constexpr uint32_t kLoadWarp = kMultiplyWarps;
inline constexpr uint32_t kGatherWarp = kLoadWarp + 1;  // the first one
inline constexpr uint32_t kGatherWarps = 3;
inline constexpr uint32_t kGatherThreads = 32 * kGatherWarps;
inline constexpr uint32_t kListWarp = kGatherWarp + kGatherWarps;
inline constexpr uint32_t kListWarps = 4;
inline constexpr uint32_t kListThreads = 32 * kListWarps;
inline constexpr uint32_t kThreads = kMultiplyThreads + 32 + kGatherThreads + kListThreads;
inline constexpr uint32_t kRouteThreads = kThreads - 32;  // all but the load warp
inline constexpr uint32_t kRouteWarps = kRouteThreads / 32;

// Named barriers: the CTA has routed its tokens, all CTAs have; the warps that multiply, that
// gather.
inline constexpr uint32_t kRouteBarrier = 1;
inline constexpr uint32_t kMetBarrier = 2;
inline constexpr uint32_t kListBarrier = 3;
inline constexpr uint32_t kGatherBarrier = 4;

// As many stages as fit beside the resident tokens.
template <uint32_t kTokens>
inline constexpr uint32_t kStages = kTokens == 16   ? 11
                                    : kTokens == 32 ? 9
                                                    : 5;

inline constexpr uint32_t kQueue = 4;  // claimed items that the gathering warps have not seen

// Scales that come with a stage, one of which is the stage's: the TMA copies 16 bytes on a multiple
// of 16.
inline constexpr uint32_t kScaleBox = 4;

// What passes from CTA to CTA is written in whole sectors of 32 bytes: of a sector written in part
// the L2 has to fetch the rest, and who reads it waits for memory.
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
struct alignas(kSector) SectorScale {
  float copies[kSector / sizeof(float)];
};

struct alignas(16) Vector {
  uint32_t words[4];
};

// A piece of work: up to kTokens tokens of an expert, `n_blocks` times 128 outputs, `k_blocks`
// blocks of K.
struct Item {
  uint32_t expert;
  uint32_t first;  // of the expert's tokens
  uint32_t n_block, n_blocks;
  uint32_t k_block, k_blocks;
};

// What the warps that multiply need of an item.
inline constexpr uint32_t kNoItem = 0xffffffff;
template <uint32_t kTokens>
struct ItemTokens {
  Item item;
  uint32_t rows;  // tokens; kNoItem after the last item
  uint32_t tokens[kTokens];
  uint32_t slots[kTokens];  // of the expert among the token's
  float weights[kTokens];   // of the expert in the token's sum
};

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

// How a piece of up to kTokens tokens is cut into items.
struct Parts {
  uint32_t item_n, item_k;  // blocks of an item
  uint32_t along_n, all;    // items of a piece
};

// What CTAs share while they run.
struct alignas(kSector) Meeting {
  uint32_t barrier;  // bit 31 changes with every call, the others are left at zero
  uint32_t claims;   // set to zero before the CTAs meet
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
  Meeting* meeting;
  uint32_t m, n, k, experts, topk;
  Parts coarse, fine;
  Parts crowded;         // instead of fine, where experts are crowded
  uint32_t fine_pieces;  // of the list, the last ones: cut finely
  uint32_t covered;      // experts whose first tokens are a CTA's first item in any case
  uint32_t pace;         // stages on their way while the CTA routes
  bool renormalize;
  float softcap;
};

}  // namespace kb::step
