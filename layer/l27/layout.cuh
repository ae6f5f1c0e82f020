// What the roles of the kernel share: sizes, shared memory, arguments.
#pragma once

#include "fp8_block.cuh"
#include "moe_layer.cuh"
#include "ptx/types.cuh"

namespace kb::step {

inline constexpr uint32_t kBlock = kFp8Block;             // values with one scale
inline constexpr uint32_t kStageBytes = kBlock * kBlock;  // 128 x 128 weights
inline constexpr uint32_t kMaxBlocks = 16;       // of an item's tokens, or h: all stay resident
inline constexpr uint32_t kMaxWideBlocks = 128;  // of a wide model's
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

// By the tokens of an item: stages of the ring, slots for blocks of tokens, routes of a call.
template <uint32_t kTokens>
inline constexpr uint32_t kStages = kTokens == 8    ? 11
                                    : kTokens == 24 ? 9
                                    : kTokens == 32 ? 8
                                    : kTokens == 40 ? 7
                                    : kTokens == 48 ? 6
                                    : kTokens == 64 ? 8
                                                    : 6;
template <uint32_t kTokens>
inline constexpr uint32_t kSlots = kTokens == 8    ? 2 * kMaxBlocks
                                   : kTokens > 80  ? 5
                                   : kTokens >= 64 ? 7
                                                   : kMaxBlocks;
template <uint32_t kTokens>
inline constexpr uint32_t kRoutes = kTokens == 8    ? 2048
                                    : kTokens == 24 ? 4096
                                    : kTokens == 40 ? 2048
                                    : kTokens >= 64 ? 32768
                                                    : 8192;
inline constexpr uint32_t kMaxTokens = 144;  // of an item
inline constexpr uint32_t kMaxRoutes = 32768;
inline constexpr uint32_t kMaxPieces = 1024;
static_assert(kMaxExperts + kRoutes<8> / 8 <= kMaxPieces &&
              kMaxExperts + kRoutes<64> / 64 <= kMaxPieces);
static_assert(4 * kMaxExperts <= kRoutes<40>, "enqueue takes pieces of 40 up to 4 an expert");

// Where routes are many, each piece's are looked up once, and their ids give their memory to
// tokens.
template <uint32_t kTokens>
inline constexpr bool kLists = kTokens == 32 || kTokens >= 48;

// Many tokens: an expert's pieces are cut evenly, products of all of them leave no registers for a
// second one under way, and the warps that multiply take over registers of the others.
template <uint32_t kTokens>
inline constexpr bool kMany = kTokens > 80;
inline constexpr uint32_t kMultiplyRegisters = 216;
inline constexpr uint32_t kOtherRegisters = 72;

// Tokens of h that are in shared memory at a time, to be quantized.
template <uint32_t kTokens>
inline constexpr uint32_t kStagedTokens = kMany<kTokens> ? 24 : kTokens;

// Stages on their way at a time. The memory's latency needs two.
inline constexpr uint32_t kInFlight = 3;  // up to eight tokens
template <uint32_t kTokens>
inline constexpr uint32_t kInFlightOf = kTokens <= 24 ? 3 : 4;
inline constexpr uint32_t kInFlightOfMany = 4;  // where items are large
inline constexpr uint32_t kQueue = 4;  // claimed items that the gathering warps have not seen

// How pieces are cut into items. Of few tokens finely, so that all CTAs have one, and whoever takes
// h's blocks quantizes them. Else an item has a block of columns; or, where pieces are many, all
// but the last ones have large items. Of wide models, whose blocks are more than kMaxBlocks, an
// item has a block of columns, too; its tokens come anew for each pass over them.
enum class Cut { kFine, kSmall, kLarge, kWide };

// Columns of h of an item.
template <Cut kCut>
inline constexpr uint32_t kItemColumns = kCut == Cut::kFine ? 32 : kBlock;
// Blocks of outputs of an item, of a wide model at most: more where tokens are many, and take
// longer to come.
template <Cut kCut, uint32_t kTokens>
inline constexpr uint32_t kItemOutputs = kCut == Cut::kFine ? 1
                                         : kTokens >= 64    ? 8
                                                            : 2;

// Of a large item: so many blocks of columns at most, and of outputs. The last pieces give each CTA
// kLastOutputs blocks of outputs, which last longer than a large item: so CTAs end together.
inline constexpr uint32_t kLargeColumns = 4;
inline constexpr uint32_t kLargeOutputs = 4;
inline constexpr uint32_t kLastOutputs = 7;
struct LargeItems {
  uint32_t many;          // pieces from which on there are large items
  uint32_t last;          // pieces without
  uint32_t columns;       // blocks of an item
  uint32_t column_parts;  // such items of a piece
};

// A piece is up to kTokens of an expert's tokens. Of a piece an item has some columns of h, or some
// outputs; the latter need all of the piece's h.
struct Item {
  uint32_t piece;
  uint32_t expert;
  uint32_t first;  // of the expert's routes
  uint32_t part;   // the first times kItemColumns columns, or block of outputs (wide: times parts),
  uint32_t count;  // of so many
  bool outputs;
};

// What passes from CTA to CTA is written in whole sectors of 32 bytes: of a sector written in part
// the L2 has to fetch the rest, and who reads it waits for memory.
inline constexpr uint32_t kSector = 32;
inline constexpr uint32_t kSectorScales = kSector / sizeof(float);
struct alignas(kSector) SectorScale {
  float copies[kSectorScales];
};

// What the warps that multiply need of an item.
template <uint32_t kTokens>
struct ItemTokens {
  float weights[kTokens];     // of the routes
  uint32_t routes[kTokens];   // token * topk + slot
  uint32_t outputs[kTokens];  // where their tokens' outputs begin
  // Of the matrices: gate and up of each block of columns, or the item's blocks of outputs.
  float matrix_scales[kTokens == 24 || kTokens == 40 || kTokens >= 64 ? 8 : 2][kMaxBlocks];
  Item item;
  uint32_t rows;  // tokens; 0 after the last item
};

inline constexpr uint32_t kPairPitch = 2 * kBlock + 4;  // floats of a row of gate and up
inline constexpr uint32_t kRowPitch = kBlock + 4;  // floats of a row of h before its quantization

template <uint32_t kTokens>
struct SharedStorage {
  alignas(1024) uint8_t weights[kStages<kTokens>][kStageBytes];    // 128-byte swizzle
  alignas(1024) uint8_t codes[kSlots<kTokens>][kTokens * kBlock];  // 128-byte swizzle
  alignas(16) float sums[kStagedTokens<kTokens> *
                         (kMany<kTokens> ? kPairPitch : kRowPitch)];  // h before its quantization
  alignas(16) uint16_t ids[kLists<kTokens> ? 8 : kRoutes<kTokens>];   // of all routes
  float scales[kSlots<kTokens>][kTokens];
  ItemTokens<kTokens> items[2];
  Mbarrier full[kStages<kTokens>];
  Mbarrier empty[kStages<kTokens>];
  Mbarrier slot_full[kSlots<kTokens>];
  Mbarrier slot_empty[kSlots<kTokens>];
  Mbarrier item_full[2];
  Mbarrier item_empty[2];
  Mbarrier place_full[kQueue];
  Mbarrier place_empty[kQueue];
  Mbarrier routed;  // the list of items is complete
  uint32_t places[kQueue];
  uint32_t counts[kMaxExperts];      // routes of each expert
  uint32_t starts[kMaxExperts + 1];  // of an expert's pieces in the list
  uint32_t matches[kRouteWarps];
  // Of a wide model, with a slot's block: the scales of gate and up, or twice that of outputs.
  float wide_scales[kSlots<kTokens>][2];
};
static_assert(sizeof(SharedStorage<8>) <= 232448 && sizeof(SharedStorage<24>) <= 232448 &&
              sizeof(SharedStorage<32>) <= 232448 && sizeof(SharedStorage<40>) <= 232448 &&
              sizeof(SharedStorage<48>) <= 232448 && sizeof(SharedStorage<64>) <= 232448 &&
              sizeof(SharedStorage<kMaxTokens>) <= 232448);

// The ids of all routes: where there are lists, in the memory of codes and, behind them, sums,
// until CTAs meet.
template <uint32_t kTokens>
KB_DEVICE uint16_t* ids_of(SharedStorage<kTokens>& shared) {
  if constexpr (kLists<kTokens>) {
    static_assert(kRoutes<kTokens> * sizeof(uint16_t) <= sizeof shared.codes + sizeof shared.sums);
    return reinterpret_cast<uint16_t*>(&shared.codes[0][0]);
  } else {
    return shared.ids;
  }
}

// What CTAs share while they run. Calls take turns: `claims` and `done` of the calls that start
// with the barrier's bit 31 clear, and set. Each call sets the other ones to zero.
struct alignas(32) Meeting {
  uint32_t barrier;  // bit 31 changes with every call, the others are left at zero
  uint32_t claims[2];
  uint32_t done[2][kMaxPieces];  // items of columns of each piece
};

struct Arguments {
  TensorMap w13;  // boxes of 8 rows of gate and 8 of up, eight or four times
  TensorMap w2;   // boxes of 8 even and 8 odd rows, eight times
  const bf16* hidden;
  const int32_t* ids;
  const float* expert_weights;
  const float* w13_scales;
  const float* w2_scales;
  float* output;
  Meeting* meeting;
  e4m3* codes;            // [m, hidden]
  SectorScale* scales;    // [m, blocks]
  float* h;               // [routes, intermediate]: of small items
  e4m3* h_codes;          // [routes, intermediate]: of the others
  SectorScale* h_scales;  // [routes, slices]
  uint32_t* lists;        // [pieces, kTokens], of routes
  uint32_t m, topk, experts;
  uint32_t blocks;  // of hidden
  uint32_t slices;  // blocks of the intermediate columns
  LargeItems large;
  // Of a wide model: blocks of outputs of an item, or so many items with a part of h each for one.
  uint32_t wide_outputs, wide_parts;
};

}  // namespace kb::step
