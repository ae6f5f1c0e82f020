// Up to eight tokens, which fill an instruction's columns for each expert: weights are read once
// for all of them. An item is a slice, 128 columns of h of one expert, and belongs to four CTAs
// that take it at the same time: each has 32 of its columns, and then a quarter of the outputs,
// from this slice only. They pass h through the L2, where a word that is not zero is there. A CTA
// computes the columns of its next item before the outputs of one: meanwhile the others' h comes.
// CTAs that few others join in the last round ask for weights further ahead.
#pragma once

#include "one_token.cuh"

namespace kb::step {

inline constexpr uint32_t kFewTokens = 8;  // rows of a tile
inline constexpr uint32_t kFewRoutes = kFewTokens * kMaxTopk;
inline constexpr uint32_t kFewStages = 12;
inline constexpr uint32_t kNoRoute = ~0u;
inline constexpr uint32_t kExactTokens = 4;

// Which experts' columns are summed exactly; FP8 sums are faster.
enum class Exact : uint32_t { kAll, kHeavy };
// Heavy is an expert for which the square of a token's weight is at least this part of the sum of
// the call's: one wrong code of h weighs as much in the output. The more tokens, the smaller a
// part.
KB_DEVICE float heavy_part(uint32_t tokens) {
  return 1.0f / static_cast<float>(tokens < 6 ? 48 : 8 * tokens);
}

// Two teams of eight warps multiply: stages take turns.
inline constexpr uint32_t kTeams = 2;
inline constexpr uint32_t kSliceWarps = kTeams * kMultiplyWarps;
inline constexpr uint32_t kSliceThreads = 32 * kSliceWarps;
inline constexpr uint32_t kSliceLoadWarp = kSliceWarps;
inline constexpr uint32_t kSliceCtaThreads = kSliceThreads + 64;
static_assert(kFewStages % kTeams == 0);

// Named barriers beside those of one token: the barriers of empty stages are ready; experts are
// listed, for the warp that meets other CTAs.
inline constexpr uint32_t kEmptyReady = 5;
inline constexpr uint32_t kListed = 6;

// As Meeting, of calls of few tokens.
struct alignas(32) SliceMeeting {
  uint32_t barrier;   // bit 31 changes with every call
  uint32_t words[2];  // of h, that the last call of a turn may have written
  alignas(32) uint32_t h[2][kFewRoutes * kMaxBlocks * kBlock];  // calls take turns; 0: not there
};

struct SliceArguments {
  TensorMap w13;  // boxes of 8 rows of gate and 8 of up, four times
  TensorMap w2;   // boxes of 8 even and 8 odd rows, eight times
  const bf16* hidden;
  const int32_t* ids;
  const float* expert_weights;
  const float* w13_scales;
  const float* w2_scales;
  float* output;
  SliceMeeting* meeting;
  uint32_t m, topk, experts;
  uint32_t blocks;  // of hidden
  uint32_t slices;
};

struct SliceStorage {
  alignas(1024) uint8_t weights[kFewStages][kStageBytes];
  alignas(1024) uint8_t codes[kMaxBlocks + 1][kTile];  // the last: of the slice's h
  float scales[kMaxBlocks][kFewTokens];
  float h_scales[kFewTokens];
  // Of gate and up, the second warpgroup's; items take turns.
  float sums[2][3][4][kBlock];
  uint32_t largest[2][4];
  uint32_t list[kFewRoutes];  // of the call's experts
  uint32_t listed;
  uint32_t before;  // the meeting's barrier when the kernel started
  Mbarrier full[kFewStages];
  Mbarrier empty[kFewStages];
};
static_assert(sizeof(SliceStorage) <= 232448);

// The items of a CTA: four CTAs have the same ones.
struct SliceCursor {
  uint32_t at;  // in the list of experts
  uint32_t slice;

  KB_DEVICE explicit SliceCursor(const SliceArguments& args)
      : at(0), slice(ptx::cta_index().x / kSliceCtas) {
    settle(args);
  }
  KB_DEVICE void advance(const SliceArguments& args) {
    slice += ptx::cta_count().x / kSliceCtas;
    settle(args);
  }

 private:
  KB_DEVICE void settle(const SliceArguments& args) {
    for (; slice >= args.slices; slice -= args.slices) ++at;
  }
};

KB_DEVICE uint32_t own_quarter() {
  return ptx::cta_index().x % kSliceCtas;
}

// Blocks of outputs of a quarter; the last may have fewer.
struct Outputs {
  uint32_t first, count;
};
KB_DEVICE Outputs own_outputs(const SliceArguments& args) {
  const uint32_t share = ceil_div(args.blocks, kSliceCtas);
  const uint32_t first = own_quarter() * share;
  const uint32_t left = first < args.blocks ? args.blocks - first : 0;
  return {first, left < share ? left : share};
}

// The experts of all routes, two a lane; kNoRoute for none.
struct RouteIds {
  uint32_t ids[2];
};
KB_DEVICE RouteIds read_ids(const SliceArguments& args) {
  RouteIds found;
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t route = 32 * i + ptx::lane_index();
    const uint32_t id = route < args.m * args.topk ? static_cast<uint32_t>(args.ids[route]) : ~0u;
    found.ids[i] = id < args.experts ? id : kNoRoute;
  }
  return found;
}

// The weights of those routes.
KB_DEVICE void read_weights(const SliceArguments& args, float (&weights)[2]) {
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t route = 32 * i + ptx::lane_index();
    weights[i] = route < args.m * args.topk ? args.expert_weights[route] : 0;
  }
}

// The square of a weight from which on a route is heavy; NaN if a weight is. A lane has two routes.
KB_DEVICE bool is_heavy(float weight, float heavy) {
  return !(weight * weight < heavy);
}
KB_DEVICE float find_heavy(const SliceArguments& args, const RouteIds& routes,
                           const float (&weights)[2]) {
  float sum = 0;
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    if (routes.ids[i] != kNoRoute) sum += weights[i] * weights[i];
  }
#pragma unroll
  for (uint32_t mask = 16; mask != 0; mask /= 2) sum += ptx::shfl_sync_bfly(sum, mask);
  return sum * heavy_part(args.m);
}

// By one warp: the call's experts, in the order of their first routes. Those whose first route is
// heavy come before the others: they take longer, and the weights that come meanwhile are used up
// by the end.
template <Exact kExact>
KB_DEVICE void list_experts(SliceStorage& shared, const SliceArguments& args,
                            const RouteIds& routes, const float (&weights)[2], float heavy) {
  constexpr uint32_t kAhead = 8;
  const uint32_t lane = ptx::lane_index();
  bool first[2] = {routes.ids[0] != kNoRoute, routes.ids[1] != kNoRoute};
  for (uint32_t begin = 0; begin < args.m * args.topk; begin += kAhead) {
    const uint32_t of = begin < 32 ? routes.ids[0] : routes.ids[1];
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t id = ptx::shfl_sync_idx(of, begin % 32 + i);
      if (id == routes.ids[0] && begin + i < lane) first[0] = false;
      if (id == routes.ids[1] && begin + i < 32 + lane) first[1] = false;
    }
  }
  uint32_t count = 0;
#pragma unroll
  for (uint32_t i = 0; i < (kExact == Exact::kHeavy ? 4 : 2); ++i) {
    bool chosen = first[i % 2];
    if (kExact == Exact::kHeavy && is_heavy(weights[i % 2], heavy) != (i < 2)) chosen = false;
    const uint32_t firsts = ptx::vote_sync_ballot(chosen);
    const auto below = static_cast<uint32_t>(__builtin_popcount(firsts & ((1u << lane) - 1)));
    if (chosen) shared.list[count + below] = routes.ids[i % 2];
    count += static_cast<uint32_t>(__builtin_popcount(firsts));
  }
  if (lane == 0) shared.listed = count;
}

// One thread streams the items' weights through the ring.
class SliceRing {
 public:
  KB_DEVICE explicit SliceRing(SliceStorage& shared)
      : shared_(shared), policy_(ptx::createpolicy_fractional_l2_evict_first()) {}

  KB_DEVICE void begin(uint32_t bytes) {
    mbarrier_wait_parity(&shared_.empty[state_.stage], state_.phase ^ 1);
    // What else the CTAs ask memory for is not to queue behind rings of weights.
    if (begun_ < in_flight_) {
      ++begun_;
    } else {
      mbarrier_wait_parity(&shared_.full[landed_.stage], landed_.phase);
      landed_.advance();
    }
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, &shared_.full[state_.stage],
                                   bytes);
  }
  KB_DEVICE void load(const TensorMap& map, uint32_t column, uint32_t group, uint32_t offset = 0) {
    ptx::cp_async_bulk_tensor_4d_shared_global(
        shared_.weights[state_.stage] + offset, &map, static_cast<int32_t>(column), 0, 0,
        static_cast<int32_t>(group), &shared_.full[state_.stage], policy_);
  }
  KB_DEVICE void advance() { state_.advance(); }
  // One more on its way from now on.
  KB_DEVICE void add_stage() { ++in_flight_; }

 private:
  SliceStorage& shared_;
  CachePolicy policy_;
  PipelineState<kFewStages> state_;
  PipelineState<kFewStages> landed_;  // the oldest load that is not known to be complete
  uint32_t begun_ = 0;                // the first loads
  uint32_t in_flight_ = kInFlight;
};

// Of an item's columns.
KB_DEVICE void load_columns(SliceRing& ring, const SliceStorage& shared, const SliceArguments& args,
                            const SliceCursor& item) {
  constexpr uint32_t kHalf = kStageBytes / 2;
  const uint32_t matrix = shared.list[item.at] * 2 * args.slices + item.slice;
  const uint32_t group = (matrix * kSliceCtas + own_quarter()) * (kOwnColumns / 8);
  for (uint32_t block = 0; block < args.blocks; block += 2) {
    const bool both = block + 1 < args.blocks;
    ring.begin(both ? kStageBytes : kHalf);
    ring.load(args.w13, block * kBlock, group);
    if (both) ring.load(args.w13, (block + 1) * kBlock, group, kHalf);
    ring.advance();
  }
}

// Of its outputs.
KB_DEVICE void load_outputs(SliceRing& ring, const SliceStorage& shared, const SliceArguments& args,
                            const SliceCursor& item) {
  const Outputs outputs = own_outputs(args);
  const uint32_t first = shared.list[item.at] * args.blocks + outputs.first;
  for (uint32_t i = 0; i < outputs.count; ++i) {
    ring.begin(kStageBytes);
    ring.load(args.w2, item.slice * kBlock, (first + i) * 8);
    ring.advance();
  }
}

// Whether a CTA has an item more than most others.
KB_DEVICE bool has_one_more(const SliceStorage& shared, const SliceArguments& args) {
  const uint32_t groups = ptx::cta_count().x / kSliceCtas;
  const uint32_t left = shared.listed * args.slices % groups;
  return ptx::cta_index().x / kSliceCtas < left && 2 * left <= groups;
}

// By one warp.
template <Exact kExact>
KB_DEVICE void load_slices(SliceStorage& shared, const SliceArguments& args) {
  const RouteIds routes = read_ids(args);
  float weights[2] = {};
  if constexpr (kExact == Exact::kHeavy) read_weights(args, weights);
  if (ptx::lane_index() == 0) {
    ptx::prefetch_tensormap(&args.w13);
    ptx::prefetch_tensormap(&args.w2);
    for (Mbarrier& bar : shared.full) ptx::mbarrier_init(&bar, 1);
    ptx::fence_mbarrier_init_release_cluster();
  }
  const float heavy = kExact == Exact::kHeavy ? find_heavy(args, routes, weights) : 0;
  list_experts<kExact>(shared, args, routes, weights, heavy);
  ptx::bar_warp_sync();
  ptx::bar_arrive(kTokenReady, kSliceCtaThreads);
  ptx::bar_arrive(kListed, 64);
  ptx::bar_sync(kEmptyReady, 64);
  if (ptx::lane_index() != 0) return;
  SliceRing ring(shared);
  SliceCursor next(args);
  if (next.at < shared.listed) load_columns(ring, shared, args, next);
  if (kExact == Exact::kHeavy && has_one_more(shared, args)) ring.add_stage();
  while (next.at < shared.listed) {
    const SliceCursor item = next;
    next.advance(args);
    if (next.at < shared.listed) load_columns(ring, shared, args, next);
    load_outputs(ring, shared, args, item);
  }
}

// By one warp: sets outputs to zero, the next call's h too, and waits until all CTAs have.
KB_DEVICE void meet(SliceStorage& shared, const SliceArguments& args) {
  constexpr uint32_t kTurn = 1u << 31;
  const uint32_t lane = ptx::lane_index();
  const uint32_t cta = ptx::cta_index().x;
  const uint32_t ctas = ptx::cta_count().x;
  const uint32_t before = args.meeting->barrier;
  const uint32_t turn = before >> 31;
  const uint32_t words = args.meeting->words[turn ^ 1];
  if (lane == 0) {
    for (Mbarrier& bar : shared.empty) ptx::mbarrier_init(&bar, kMultiplyWarps);
    ptx::fence_mbarrier_init_release_cluster();
    shared.before = before;
    if (cta == 0) args.meeting->words[turn] = args.m * args.topk * args.slices * kBlock;
  }
  ptx::bar_warp_sync();
  ptx::bar_arrive(kEmptyReady, 64);
  ptx::bar_arrive(kTokenReady, kSliceCtaThreads);
  for (uint32_t i = 32 * cta + lane; i < args.m * args.blocks * (kBlock / 4); i += 32 * ctas) {
    reinterpret_cast<Floats*>(args.output)[i] = {};
  }
  ptx::bar_warp_sync();
  if (lane == 0) {
    const uint32_t share = cta == 0 ? kTurn - (ctas - 1) : 1;
    ptx::red_release_gpu_global_add_u32(&args.meeting->barrier, share);
  }
  auto* next = reinterpret_cast<Floats*>(args.meeting->h[turn ^ 1]);
  for (uint32_t i = 32 * cta + lane; i < words / 4; i += 32 * ctas) next[i] = {};
  ptx::bar_sync(kListed, 64);
  if (SliceCursor(args).at >= shared.listed) return;
  if (lane == 0) global_wait_changed(&args.meeting->barrier, before, kTurn);
  ptx::bar_warp_sync();
  ptx::bar_arrive(kSliceReady, kSliceThreads + 32);
}

// The tokens' codes, a block of each by 16 threads. Rows without a token become zero.
KB_DEVICE void quantize_rows(SliceStorage& shared, const SliceArguments& args) {
  constexpr uint32_t kAhead = 4;  // tokens on their way at a time
  const uint32_t thread = ptx::thread_index();
  const uint32_t block = thread / 16;
  for (uint32_t first = 0; first < args.m; first += kAhead) {
    Vector vectors[kAhead];
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t token = first + i;
      vectors[i] = {};
      if (token < args.m && block < args.blocks) {
        vectors[i] =
            reinterpret_cast<const Vector*>(args.hidden)[token * args.blocks * 16 + thread];
      }
    }
    if (first == 0) {
      if (thread < kMaxBlocks * kFewTokens && thread % kFewTokens >= args.m) {
        shared.scales[thread / kFewTokens][thread % kFewTokens] = 0;
      }
      for (uint32_t i = thread; i < (kMaxBlocks + 1) * (kTile / 16); i += kMultiplyThreads) {
        const uint32_t row = i / kRowChunks % kFewTokens;
        if (row >= args.m || i >= kMaxBlocks * (kTile / 16)) {
          reinterpret_cast<Vector*>(shared.codes)[i] = {};
        }
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t token = first + i;
      if (token >= args.m) break;
      float values[8];
      uint32_t amax = 0;
#pragma unroll
      for (uint32_t v = 0; v < 8; ++v) {
        const uint32_t word = vectors[i].words[v / 2];
        values[v] = __builtin_bit_cast(float, v % 2 == 0 ? word << 16 : word & 0xffff0000u);
        amax = larger(amax, magnitude(values[v]));
      }
#pragma unroll
      for (uint32_t mask = 8; mask != 0; mask /= 2) {
        amax = larger(amax, ptx::shfl_sync_bfly(amax, mask));
      }
      const float scale = fp8_scale(__builtin_bit_cast(float, amax));
      const float lo[4] = {values[0], values[1], values[2], values[3]};
      const float hi[4] = {values[4], values[5], values[6], values[7]};
      uint8_t* to = shared.codes[block] + swizzle_128b(token, thread % 16 / 2);
      reinterpret_cast<Codes*>(to)[thread % 2] = {codes_of(lo, scale), codes_of(hi, scale)};
      if (thread % 16 == 0) shared.scales[block][token] = scale;
    }
  }
}

// The matrices' scales for an item: a lane has that of one of 16 blocks of gate, or of up, and that
// of one of its blocks of outputs.
struct SliceScales {
  float columns, outputs;
};
KB_DEVICE SliceScales read_scales(const SliceStorage& shared, const SliceArguments& args,
                                  const SliceCursor& item) {
  const uint32_t lane = ptx::lane_index();
  const uint32_t block = lane % kMaxBlocks;
  const Outputs outputs = own_outputs(args);
  const uint64_t expert = shared.list[item.at];
  const uint32_t matrix = args.slices * args.blocks;  // scales of gate, of up, of down
  const float* columns = args.w13_scales + (2 * expert + lane / kMaxBlocks) * matrix;
  const float* down = args.w2_scales + expert * matrix;
  SliceScales found = {};
  if (block < args.blocks) found.columns = columns[item.slice * args.blocks + block];
  if (lane < outputs.count) {
    found.outputs = down[(outputs.first + lane) * args.slices + item.slice];
  }
  return found;
}

// Which routes have an item's expert, and whether one is heavy; and of the two tokens that a thread
// has sums of, the first such route, and the weights.
struct ItemRoutes {
  uint64_t all;
  bool heavy;
  uint32_t own[2];
  float weights[2];
};
KB_DEVICE uint32_t first_route(uint64_t routes) {
  return static_cast<uint32_t>(__builtin_popcountll((routes & (0 - routes)) - 1));
}
KB_DEVICE ItemRoutes find_routes(const SliceArguments& args, const RouteIds& routes,
                                 const float (&weights)[2], float heavy, uint32_t expert) {
  const uint64_t high = ptx::vote_sync_ballot(routes.ids[1] == expert);
  ItemRoutes found = {.all = ptx::vote_sync_ballot(routes.ids[0] == expert) | high << 32,
                      .heavy = false,
                      .own = {kNoRoute, kNoRoute},
                      .weights = {}};
  float sum = 0;  // of a token's weights
  uint32_t last = kNoRoute;
  for (uint64_t left = found.all; left != 0; left &= left - 1) {
    const auto route = first_route(left);
    const float weight = ptx::shfl_sync_idx(route < 32 ? weights[0] : weights[1], route % 32);
    const uint32_t token = route / args.topk;
    sum = token == last ? sum + weight : weight;
    last = token;
    if (is_heavy(sum, heavy)) found.heavy = true;
#pragma unroll
    for (uint32_t v = 0; v < 2; ++v) {
      if (token != token_of(v)) continue;
      if (found.own[v] == kNoRoute) found.own[v] = route;
      found.weights[v] += weight;
    }
  }
  return found;
}

// Where the first column of a route's h is.
KB_DEVICE uint32_t* words_of(const SliceStorage& shared, const SliceArguments& args, uint32_t route,
                             uint32_t slice) {
  return args.meeting->h[shared.before >> 31] + (route * args.slices + slice) * kBlock;
}

// By the second warpgroup, a column each: takes the slice's h and quantizes it, token by token.
KB_DEVICE void quantize_slice(SliceStorage& shared, const SliceArguments& args, uint64_t routes,
                              uint32_t slice) {
  const uint32_t column = ptx::thread_index() % kBlock;
  uint32_t turn = 0;
  for (uint32_t last = kNoRoute; routes != 0; routes &= routes - 1) {
    const auto route = first_route(routes);
    const uint32_t token = route / args.topk;
    if (token == last) continue;  // it names the expert twice
    last = token;
    const uint32_t* word = words_of(shared, args, route, slice) + column;
    const auto h = __builtin_bit_cast(float, global_wait_changed(word, 0, ~0u));
    const uint32_t own = ptx::redux_sync_max(magnitude(h));
    if (ptx::lane_index() == 0) shared.largest[turn][ptx::warp_index() % 4] = own;
    ptx::bar_sync(kFound, kMultiplyThreads / 2);
    uint32_t amax = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) amax = larger(amax, shared.largest[turn][i]);
    const float scale = fp8_scale(__builtin_bit_cast(float, amax));
    const float value = divide_by(h, scale, 1.0f / scale);
    shared.codes[kMaxBlocks][swizzle_128b(token, column / kChunkBytes) + column % kChunkBytes] =
        static_cast<uint8_t>(
            __builtin_bit_cast(uint16_t, ptx::cvt_rn_satfinite_e4m3x2_f32(value, value)));
    if (column == 0) shared.h_scales[token] = scale;
    turn ^= 1;
  }
  ptx::fence_proxy_async(ptx::space_shared_cta);
}

// The product of the warpgroup's 64 rows of a stage and a tile of tokens.
KB_DEVICE void multiply_stage(const SliceStorage& shared, float (&products)[4], uint32_t stage,
                              uint32_t tile) {
  const uint8_t* weights = shared.weights[stage] + ptx::warp_index() / 4 % 2 * (kStageBytes / 2);
  multiply_fp8_block(products, wgmma_smem_descriptor(kTileSw128, ptx::smem_address(weights)),
                     wgmma_smem_descriptor(kTileSw128, ptx::smem_address(shared.codes[tile])));
}

// The warpgroup's product of 64 rows of a stage and a block of the tokens; lets the stage go.
template <bool kExact>
KB_DEVICE void multiply_block(SliceStorage& shared, float (&products)[4], uint32_t stage,
                              uint32_t block) {
  if constexpr (kExact) {
    WeightCodes weights;
    load_weights(weights, shared.weights[stage], ptx::warp_index() % kMultiplyWarps);
    ptx::bar_warp_sync();  // all lanes have read the stage
    release(shared.empty[stage]);
    TokenHalves<1> tokens;
    load_tokens(tokens, shared.codes[block]);
    multiply_exactly(products, weights, tokens);
  } else {
    multiply_stage(shared, products, stage, block);
    release(shared.empty[stage]);
  }
}

// Sums of gate and up, of the two tokens that a thread has sums of, over the team's stages and half
// of their blocks.
template <bool kExact>
KB_DEVICE void multiply_columns(SliceStorage& shared, const SliceArguments& args,
                                PipelineState<kFewStages>& state, float scales, float (&sums)[4]) {
  const uint32_t half = ptx::warp_index() / 4 % 2;
  const uint32_t team = ptx::warp_index() / kMultiplyWarps;
  for (uint32_t first = 0; first < args.blocks; first += 2) {
    const uint32_t block = first + half;
    if (state.stage % kTeams == team) {
      mbarrier_wait_parity(&shared.full[state.stage], state.phase);
      if (block < args.blocks) {
        float products[4];
        multiply_block<kExact>(shared, products, state.stage, block);
        const float gate = ptx::shfl_sync_idx(scales, block);
        const float up = ptx::shfl_sync_idx(scales, kMaxBlocks + block);
#pragma unroll
        for (uint32_t v = 0; v < 2; ++v) {
          const float scale = shared.scales[block][token_of(v)];
          sums[v] += products[v] * (scale * gate);
          sums[v + 2] += products[v + 2] * (scale * up);
        }
      } else {
        ptx::bar_warp_sync();  // all lanes have seen the stage
        release(shared.empty[state.stage]);
      }
    }
    state.advance();
  }
}

// What a thread knows of an item until its outputs are added.
struct SliceItem {
  SliceCursor cursor;
  SliceScales scales;
  ItemRoutes own;
};
KB_DEVICE SliceItem read_item(const SliceStorage& shared, const SliceArguments& args,
                              const RouteIds& routes, const float (&weights)[2], float heavy,
                              const SliceCursor& cursor) {
  SliceItem item = {cursor, {}, {}};
  if (cursor.at >= shared.listed) return item;
  item.scales = read_scales(shared, args, cursor);
  item.own = find_routes(args, routes, weights, heavy, shared.list[cursor.at]);
  return item;
}

// By the first warpgroup: passes its part of an item's h on. `others` are the second's sums.
KB_DEVICE void publish_columns(const SliceStorage& shared, const SliceArguments& args,
                               const SliceItem& item, const float (&sums)[4],
                               const float (&others)[3][4][kBlock]) {
  const uint32_t thread = ptx::thread_index() % 128;
  const uint32_t row = ptx::warp_index() * 8 + ptx::lane_index() / 4;
  const uint32_t column = own_quarter() * kOwnColumns + row;
#pragma unroll
  for (uint32_t v = 0; v < 2; ++v) {
    if (item.own.own[v] == kNoRoute) continue;
    const float gate = sums[v] + others[0][v][thread] + others[1][v][thread] + others[2][v][thread];
    const float up = sums[v + 2] + others[0][v + 2][thread] + others[1][v + 2][thread] +
                     others[2][v + 2][thread];
    const float h = silu(gate) * up;
    const auto bits = __builtin_bit_cast(uint32_t, h);
    // Zero stands for what is not there: -0 is as good.
    ptx::atom_relaxed_gpu_global_add_u32(
        words_of(shared, args, item.own.own[v], item.cursor.slice) + column,
        bits == 0 ? 1u << 31 : bits);
  }
}

// Adds an item's outputs.
KB_DEVICE void multiply_outputs(SliceStorage& shared, const SliceArguments& args,
                                PipelineState<kFewStages>& state, const SliceItem& item) {
  const Outputs outputs = own_outputs(args);
  const uint32_t team = ptx::warp_index() / kMultiplyWarps;
  for (uint32_t i = 0; i < outputs.count; ++i) {
    if (state.stage % kTeams != team) {
      state.advance();
      continue;
    }
    mbarrier_wait_parity(&shared.full[state.stage], state.phase);
    float products[4];
    multiply_stage(shared, products, state.stage, kMaxBlocks);
    release(shared.empty[state.stage]);
    state.advance();
    const float down = ptx::shfl_sync_idx(item.scales.outputs, i);
    const uint32_t row = ptx::warp_index() % kMultiplyWarps * 16 + 2 * (ptx::lane_index() / 4);
    const uint32_t at = (outputs.first + i) * kBlock + row;
#pragma unroll
    for (uint32_t v = 0; v < 2; ++v) {
      if (item.own.own[v] == kNoRoute) continue;
      const float scale = shared.h_scales[token_of(v)] * down;
      const float pair[2] = {products[v] * scale * item.own.weights[v],
                             products[v + 2] * scale * item.own.weights[v]};
      ptx::red_relaxed_gpu_global_add_v2_f32(
          args.output + uint64_t{token_of(v)} * args.blocks * kBlock + at, pair);
    }
  }
}

// By two teams of eight warps.
template <Exact kExact>
KB_DEVICE void multiply_slices(SliceStorage& shared, const SliceArguments& args) {
  const uint32_t group = ptx::warp_index() / 4;
  const RouteIds routes = read_ids(args);
  float weights[2];
  read_weights(args, weights);
  const float heavy = kExact == Exact::kHeavy ? find_heavy(args, routes, weights) : 0;
  if (ptx::thread_index() < kMultiplyThreads) quantize_rows(shared, args);
  ptx::fence_proxy_async(ptx::space_shared_cta);
  ptx::bar_sync(kTokenReady, kSliceCtaThreads);
  SliceItem next = read_item(shared, args, routes, weights, heavy, SliceCursor(args));
  if (next.cursor.at >= shared.listed) return;
  PipelineState<kFewStages> state;
  SliceItem item = next;
  // In a turn the columns of `next`, then the outputs of `item`, the one before it.
  for (uint32_t turn = 0;; ++turn) {
    const bool columns = next.cursor.at < shared.listed;
    auto& others = shared.sums[turn % 2];
    float sums[4] = {};
    SliceItem after = next;
    if (columns) {
      after.cursor.advance(args);
      after = read_item(shared, args, routes, weights, heavy, after.cursor);
      if (kExact == Exact::kAll || next.own.heavy) {
        multiply_columns<true>(shared, args, state, next.scales.columns, sums);
      } else {
        multiply_columns<false>(shared, args, state, next.scales.columns, sums);
      }
      if (group != 0) {
#pragma unroll
        for (uint32_t v = 0; v < 4; ++v) others[group - 1][v][ptx::thread_index() % 128] = sums[v];
      }
    }
    // The second warpgroup's sums are there, and the outputs before have been multiplied.
    ptx::bar_sync(kSummed, kSliceThreads);
    if (group == 0 && columns) publish_columns(shared, args, next, sums, others);
    if (turn > 0) {
      if (group == 1) quantize_slice(shared, args, item.own.all, item.cursor.slice);
      ptx::bar_sync(kSliceReady, kSliceThreads + (turn == 1 ? 32 : 0));
      multiply_outputs(shared, args, state, item);
    }
    if (!columns) return;
    item = next;
    next = after;
  }
}

template <Exact kExact>
KB_GLOBAL void KB_LAUNCH_BOUNDS(kSliceCtaThreads, 1)
    run_slices(KB_GRID_CONSTANT(SliceArguments) args) {
  auto& shared = shared_storage<SliceStorage>();
  const uint32_t warp = ptx::warp_index();
  if (warp < kSliceWarps) {
    multiply_slices<kExact>(shared, args);
  } else if (warp == kSliceLoadWarp) {
    load_slices<kExact>(shared, args);
  } else {
    meet(shared, args);
  }
}

}  // namespace kb::step
