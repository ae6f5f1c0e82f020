// What the roles of the kernel share: sizes, shared memory, arguments.
#pragma once

#include "fp8_block.cuh"
#include "moe_layer.cuh"
#include "ptx/types.cuh"

namespace kb::step {

inline constexpr uint32_t kBlock = kFp8Block;             // values with one scale
inline constexpr uint32_t kStageBytes = kBlock * kBlock;  // 128 x 128 weights
inline constexpr uint32_t kBlocks = 16;  // of hidden at most: a token's stay resident
inline constexpr uint32_t kSlices = 4;   // of an item at most
inline constexpr uint32_t kMaxExperts = 512;
inline constexpr uint32_t kMaxTopk = 8;
inline constexpr uint32_t kNoExpert = 0xffff;

// Two warpgroups multiply, one warp loads weights, three gather tokens.
inline constexpr uint32_t kMultiplyWarps = 8;
inline constexpr uint32_t kMultiplyThreads = 32 * kMultiplyWarps;
inline constexpr uint32_t kLoadWarp = kMultiplyWarps;
inline constexpr uint32_t kGatherWarp = kLoadWarp + 1;  // the first one
inline constexpr uint32_t kGatherWarps = 3;
inline constexpr uint32_t kGatherThreads = 32 * kGatherWarps;
inline constexpr uint32_t kThreads = kMultiplyThreads + 32 + kGatherThreads;
inline constexpr uint32_t kRouteWarps = kMultiplyWarps + kGatherWarps;  // all but the load warp
inline constexpr uint32_t kRouteThreads = 32 * kRouteWarps;

// Named barriers.
inline constexpr uint32_t kRouteBarrier = 1;
inline constexpr uint32_t kMultiplyBarrier = 2;
inline constexpr uint32_t kGatherBarrier = 3;

// By the tokens of an item: stages of the ring, buffers of resident tokens, routes of a call.
template <uint32_t kTokens>
inline constexpr uint32_t kStages = kTokens == 8    ? 10
                                    : kTokens == 16 ? 8
                                    : kTokens == 32 ? 6
                                                    : 3;
template <uint32_t kTokens>
inline constexpr uint32_t kBuffers = kTokens <= 16 ? 2 : 1;
template <uint32_t kTokens>
inline constexpr uint32_t kRoutes = kTokens == 8    ? 2048
                                    : kTokens == 16 ? 4096
                                                    : 8192;
inline constexpr uint32_t kMaxRoutes = 8192;

inline constexpr uint32_t kPace = 3;   // stages on their way while the CTA gets its first tokens
inline constexpr uint32_t kQueue = 4;  // claimed items that the gathering warps have not seen

// A piece of work: up to kTokens of an expert's tokens, some slices of 128 intermediate columns.
// A slice is one block of h: it needs nothing of the other ones.
struct Item {
  uint32_t expert;
  uint32_t first;  // of the expert's routes
  uint32_t slice, slices;
};

// What the warps that multiply need of an item.
template <uint32_t kTokens>
struct ItemTokens {
  float scales[kBlocks][kTokens];  // of the tokens' blocks; 0 where there is no token
  float weights[kTokens];
  uint32_t routes[kTokens];  // token * topk + slot
  float gate_scales[kSlices][kBlocks], up_scales[kSlices][kBlocks];
  float down_scales[kBlocks][kSlices];
  Item item;
  uint32_t rows;  // tokens; 0 after the last item
};

inline constexpr uint32_t kRowPitch = kBlock + 4;  // floats of a row of h before its quantization

template <uint32_t kTokens>
struct SharedStorage {
  alignas(1024) uint8_t weights[kStages<kTokens>][kStageBytes];               // 128-byte swizzle
  alignas(1024) uint8_t codes[kBuffers<kTokens>][kBlocks][kTokens * kBlock];  // 128-byte swizzle
  alignas(1024) uint8_t h[kSlices][kTokens * kBlock];                         // 128-byte swizzle
  alignas(16) float sums[kTokens * kRowPitch];  // a slice of h before its quantization
  alignas(16) uint16_t ids[kRoutes<kTokens>];   // of all routes
  float h_scales[kSlices][kTokens];             // times the routes' weights
  ItemTokens<kTokens> items[2];
  Mbarrier full[kStages<kTokens>];
  Mbarrier empty[kStages<kTokens>];
  Mbarrier item_full[2];
  Mbarrier item_empty[2];
  Mbarrier codes_empty[kBuffers<kTokens>];
  Mbarrier place_full[kQueue];
  Mbarrier place_empty[kQueue];
  Mbarrier routed;  // the list of items is complete
  uint32_t places[kQueue];
  uint32_t counts[kMaxExperts];      // routes of each expert
  uint32_t starts[kMaxExperts + 1];  // of an expert's pieces in the list
  uint32_t matches[kRouteWarps];
};
static_assert(sizeof(SharedStorage<8>) <= 232448 && sizeof(SharedStorage<16>) <= 232448 &&
              sizeof(SharedStorage<32>) <= 232448 && sizeof(SharedStorage<48>) <= 232448);

// What CTAs share while they run.
struct alignas(32) Meeting {
  uint32_t barrier;    // bit 31 changes with every call, the others are left at zero
  uint32_t claims[2];  // of the calls that start with bit 31 clear, and set
};

struct Arguments {
  TensorMap w13;  // boxes of 8 rows of gate and 8 of up, eight times
  TensorMap w2;   // boxes of 8 even and 8 odd rows, eight times
  const bf16* hidden;
  const int32_t* ids;
  const float* expert_weights;
  const float* w13_scales;
  const float* w2_scales;
  float* output;
  Meeting* meeting;
  uint32_t m, topk, experts;
  uint32_t blocks;       // of hidden
  uint32_t slices;       // of intermediate columns
  uint32_t item_slices;  // of a large item
  uint32_t parts;        // large items of a piece
};

}  // namespace kb::step
