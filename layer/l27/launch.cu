// Host path: one kernel, whose CTAs are all resident, recorded as a graph for the calls that
// follow. One token has its own, a few tokens have, wide models have; else the tokens of an item
// follow from the routes of an expert on average. What CTAs meet at is kept for each stream.
#include <algorithm>
#include <map>

#include "call_graphs.cuh"
#include "few_tokens.cuh"
#include "kept_buffer.cuh"
#include "layer.cuh"

namespace kb::step {
namespace {

// What calls on one stream keep.
struct Workspace {
  DeviceBuffer<Meeting> meeting_memory;
  Meeting* meeting = nullptr;  // zero at first; every call leaves it ready for the next
  DeviceBuffer<TokenMeeting> token_meeting_memory;
  TokenMeeting* token_meeting = nullptr;  // the same
  DeviceBuffer<SliceMeeting> slice_meeting_memory;
  SliceMeeting* slice_meeting = nullptr;  // the same
  DeviceBuffer<e4m3> codes;               // [m, h]
  DeviceBuffer<SectorScale> scales;       // [m, h / 128]
  DeviceBuffer<float> h;                  // [routes, i], of few routes
  DeviceBuffer<e4m3> h_codes;             // [routes, i]
  DeviceBuffer<SectorScale> h_scales;     // [routes, i / 128]
  DeviceBuffer<uint32_t> lists;           // [pieces, 80]
};

// A call, and where what passes between its CTAs is.
struct Plan {
  MoeLayerCall call;
  bool fine;
  Meeting* meeting;
  TokenMeeting* token_meeting;
  SliceMeeting* slice_meeting;
  e4m3* codes;
  SectorScale* scales;
  float* h;
  e4m3* h_codes;
  SectorScale* h_scales;
  uint32_t* lists;

  friend bool operator==(const Plan&, const Plan&) = default;
};

// Whether a token's blocks, or those of its h, are more than stay in shared memory.
bool is_wide(const MoeLayerCall& call) {
  return std::max(call.h, call.i) > static_cast<int32_t>(kMaxBlocks * kBlock);
}

// Small items where large ones would be too few for all CTAs.
bool has_small_items(const MoeLayerCall& call) {
  const int64_t routes = int64_t{call.m} * call.topk;
  return !is_wide(call) && 2 * routes * (call.i / kBlock) <= rt::sm_count() && routes <= 4 * call.e;
}

// Whether CTAs have more than one item of columns, if few routes are at the same expert.
bool has_several_items(const MoeLayerCall& call) {
  return int64_t{call.m} * call.topk * (call.i / kBlock) > rt::sm_count();
}

Workspace& workspace_of(rt::Stream stream) {
  static std::map<void*, Workspace> workspaces;
  static Workspace* last = nullptr;
  const auto found = workspaces.find(stream.handle);
  // Nothing can be allocated while the caller records a stream: it gets that of the call before.
  if (found == workspaces.end() && last != nullptr && rt::recorded(stream)) return *last;
  last = found == workspaces.end() ? &workspaces[stream.handle] : &found->second;
  return *last;
}

Plan plan_call(const MoeLayerCall& call) {
  const rt::Stream stream{call.stream};
  Workspace& kept = workspace_of(stream);
  if (kept.meeting == nullptr) {
    kept.meeting = kept.meeting_memory.reserve(1);
    rt::memset_async(kept.meeting, 0, sizeof(Meeting), stream);
    kept.token_meeting = kept.token_meeting_memory.reserve(1);
    rt::memset_async(kept.token_meeting, 0, sizeof(TokenMeeting), stream);
    kept.slice_meeting = kept.slice_meeting_memory.reserve(1);
    rt::memset_async(kept.slice_meeting, 0, sizeof(SliceMeeting), stream);
  }
  const size_t m = call.m;
  const size_t routes = m * call.topk;
  const bool fine = has_small_items(call);
  return {.call = call,
          .fine = fine,
          .meeting = kept.meeting,
          .token_meeting = kept.token_meeting,
          .slice_meeting = kept.slice_meeting,
          .codes = kept.codes.reserve(m * call.h),
          .scales = kept.scales.reserve(m * (call.h / kBlock)),
          .h = fine ? kept.h.reserve(routes * call.i) : nullptr,
          .h_codes = fine ? nullptr : kept.h_codes.reserve(routes * call.i),
          .h_scales = fine ? nullptr : kept.h_scales.reserve(routes * (call.i / kBlock)),
          .lists = kept.lists.reserve(kMaxPieces * kMaxTokens)};
}

// [2 i, h] of each expert: a box has 8 rows of the gate, the same 8 of up, and so on.
TensorMap encode_w13(const MoeLayerCall& call, uint32_t groups) {
  const auto h = static_cast<uint64_t>(call.h);
  const auto i = static_cast<uint64_t>(call.i);
  return rt::encode_tensor_map({.element = TensorMapElement::kU8,
                                .rank = 4,
                                .address = call.w13,
                                .dims = {h, 8, 2, (2 * call.e - 1) * i / 8},
                                .strides = {h, i * h, 8 * h},
                                .box = {kBlock, 8, 2, groups},
                                .swizzle = TensorMapSwizzle::k128B});
}

// [h, i] of each expert: of 16 rows a box has the even ones before the odd ones.
TensorMap encode_w2(const MoeLayerCall& call) {
  const auto h = static_cast<uint64_t>(call.h);
  const auto i = static_cast<uint64_t>(call.i);
  return rt::encode_tensor_map({.element = TensorMapElement::kU8,
                                .rank = 4,
                                .address = call.w2,
                                .dims = {i, 8, 2, call.e * h / 16},
                                .strides = {2 * i, i, 16 * i},
                                .box = {kBlock, 8, 2, 8},
                                .swizzle = TensorMapSwizzle::k128B});
}

// Pieces are many where columns give a CTA more than one large item: that ends before others, whose
// columns are all done, wait for its h.
LargeItems large_items(uint32_t ctas, uint32_t blocks, uint32_t slices) {
  const uint32_t parts = ceil_div(slices, kLargeColumns);
  const uint32_t last = ceil_div(kLastOutputs * ctas, blocks);
  return {.many = std::max(ceil_div((2 * kLargeColumns + 1) * ctas, 2 * slices), last),
          .last = last,
          .columns = ceil_div(slices, parts),
          .column_parts = parts};
}

// A wide model's items of outputs are to be four for each CTA: with up to `most` blocks of outputs,
// or a part of h, not below 16 of its blocks.
struct WideItems {
  uint32_t outputs, parts;
};
WideItems wide_items(const MoeLayerCall& call, uint32_t most) {
  const int64_t pieces = std::min(int64_t{call.m} * call.topk, int64_t{call.e});
  const int64_t wanted = int64_t{4} * rt::sm_count();
  const int64_t blocks = pieces * (call.h / kBlock);
  const auto slices = static_cast<uint32_t>(call.i) / kBlock;
  const auto parts = std::clamp<int64_t>(wanted / blocks, 1, ceil_div(slices, kMaxBlocks));
  const uint32_t share = ceil_div(slices, static_cast<uint32_t>(parts));
  return {.outputs = static_cast<uint32_t>(std::clamp<int64_t>(blocks / wanted, 1, most)),
          .parts = ceil_div(slices, share)};
}

template <Cut kCut, uint32_t kTokens>
void enqueue_kernel(const Plan& plan, rt::Stream stream) {
  const MoeLayerCall& call = plan.call;
  const auto blocks = static_cast<uint32_t>(call.h) / kBlock;
  const auto slices = static_cast<uint32_t>(call.i) / kBlock;
  const auto routes = static_cast<uint64_t>(call.m) * call.topk;
  const auto sms = static_cast<uint64_t>(rt::sm_count());
  const uint64_t items = routes * slices * (kBlock / kItemColumns<kCut>);
  const auto ctas = static_cast<uint32_t>(std::min(sms, items));
  const WideItems wide = wide_items(call, kItemOutputs<kCut, kTokens>);
  rt::launch(run_layer<kCut, kTokens>,
             {.grid = {ctas, 1, 1},
              .threads = kThreads,
              .shared_bytes = sizeof(SharedStorage<kTokens>),
              .stream = stream,
              .cooperative = true},
             Arguments{.w13 = encode_w13(call, kCut == Cut::kFine ? 4 : 8),
                       .w2 = encode_w2(call),
                       .hidden = call.hidden,
                       .ids = call.ids,
                       .expert_weights = call.expert_weights,
                       .w13_scales = call.w13_scales,
                       .w2_scales = call.w2_scales,
                       .output = call.output,
                       .meeting = plan.meeting,
                       .codes = plan.codes,
                       .scales = plan.scales,
                       .h = plan.h,
                       .h_codes = plan.h_codes,
                       .h_scales = plan.h_scales,
                       .lists = plan.lists,
                       .m = static_cast<uint32_t>(call.m),
                       .topk = static_cast<uint32_t>(call.topk),
                       .experts = static_cast<uint32_t>(call.e),
                       .blocks = blocks,
                       .slices = slices,
                       .large = large_items(ctas, blocks, slices),
                       .wide_outputs = wide.outputs,
                       .wide_parts = wide.parts});
}

// CTAs of the kernel for one token.
uint32_t token_ctas(const MoeLayerCall& call) {
  return static_cast<uint32_t>(call.topk * (call.i / kBlock)) * kSliceCtas;
}

// Whether its CTAs are resident at once.
bool has_one_token(const MoeLayerCall& call) {
  return call.m == 1 &&
         token_ctas(call) <= std::min(static_cast<uint32_t>(rt::sm_count()), kMaxTokenCtas);
}

void enqueue_token(const Plan& plan, rt::Stream stream) {
  const MoeLayerCall& call = plan.call;
  rt::launch(run_token,
             {.grid = {kSliceCtas, static_cast<uint32_t>(call.i) / kBlock,
                       static_cast<uint32_t>(call.topk)},
              .threads = kTokenThreads,
              .shared_bytes = sizeof(TokenStorage),
              .stream = stream,
              .cooperative = true},
             TokenArguments{.w13 = encode_w13(call, 4),
                            .w2 = encode_w2(call),
                            .hidden = call.hidden,
                            .ids = call.ids,
                            .expert_weights = call.expert_weights,
                            .w13_scales = call.w13_scales,
                            .w2_scales = call.w2_scales,
                            .output = call.output,
                            .meeting = plan.token_meeting,
                            .experts = static_cast<uint32_t>(call.e),
                            .blocks = static_cast<uint32_t>(call.h) / kBlock,
                            .slices = static_cast<uint32_t>(call.i) / kBlock});
}

// CTAs of the kernel for few tokens: all resident, four for each item at a time.
uint32_t slice_ctas(const MoeLayerCall& call) {
  const auto resident = static_cast<uint32_t>(rt::sm_count()) / kSliceCtas * kSliceCtas;
  return std::min(resident,
                  static_cast<uint32_t>(call.m * call.topk * (call.i / kBlock)) * kSliceCtas);
}

bool has_few_tokens(const MoeLayerCall& call) {
  return call.m <= static_cast<int32_t>(kFewTokens) && slice_ctas(call) != 0;
}

void enqueue_slices(const Plan& plan, rt::Stream stream) {
  const MoeLayerCall& call = plan.call;
  rt::launch(call.m <= static_cast<int32_t>(kExactTokens) ? run_slices<Exact::kAll>
                                                          : run_slices<Exact::kHeavy>,
             {.grid = {slice_ctas(call), 1, 1},
              .threads = kSliceCtaThreads,
              .shared_bytes = sizeof(SliceStorage),
              .stream = stream,
              .cooperative = true},
             SliceArguments{.w13 = encode_w13(call, 4),
                            .w2 = encode_w2(call),
                            .hidden = call.hidden,
                            .ids = call.ids,
                            .expert_weights = call.expert_weights,
                            .w13_scales = call.w13_scales,
                            .w2_scales = call.w2_scales,
                            .output = call.output,
                            .meeting = plan.slice_meeting,
                            .m = static_cast<uint32_t>(call.m),
                            .topk = static_cast<uint32_t>(call.topk),
                            .experts = static_cast<uint32_t>(call.e),
                            .blocks = static_cast<uint32_t>(call.h) / kBlock,
                            .slices = static_cast<uint32_t>(call.i) / kBlock});
}

// Of a wide model: weights of an expert are read for each of its pieces.
void enqueue_wide(const Plan& plan, rt::Stream stream) {
  const int64_t routes = int64_t{plan.call.m} * plan.call.topk;
  const int64_t experts = plan.call.e;
  if (plan.call.m <= 24) return enqueue_kernel<Cut::kWide, 24>(plan, stream);
  if (routes <= 4 * experts) return enqueue_kernel<Cut::kWide, 40>(plan, stream);
  if (routes <= 8 * experts) return enqueue_kernel<Cut::kWide, 24>(plan, stream);
  if (routes <= 48 * experts) return enqueue_kernel<Cut::kWide, 64>(plan, stream);
  enqueue_kernel<Cut::kWide, kMaxTokens>(plan, stream);
}

// Tokens of an item. An expert has no more tokens than the call: pieces of few leave memory to the
// ring, which then bridges a change of items. Else by the routes of an expert on average,
// M topk / E: more than most experts have, whose weights are then read once. Few routes may still
// be at a few experts, all of them: pieces of 40 cost 1 % where they are not, and halve the time
// where they are.
void enqueue(const Plan& plan, rt::Stream stream) {
  const int64_t routes = int64_t{plan.call.m} * plan.call.topk;
  const int64_t experts = plan.call.e;
  if (is_wide(plan.call)) return enqueue_wide(plan, stream);
  if (has_one_token(plan.call)) return enqueue_token(plan, stream);
  if (has_few_tokens(plan.call)) return enqueue_slices(plan, stream);
  if (plan.fine) return enqueue_kernel<Cut::kFine, 8>(plan, stream);
  if (has_several_items(plan.call)) {
    if (plan.call.m <= 8) return enqueue_kernel<Cut::kSmall, 8>(plan, stream);
    if (plan.call.m <= 24) return enqueue_kernel<Cut::kSmall, 24>(plan, stream);
  }
  if (routes <= 4 * experts) return enqueue_kernel<Cut::kLarge, 40>(plan, stream);
  if (routes <= 8 * experts) return enqueue_kernel<Cut::kLarge, 24>(plan, stream);
  if (routes <= 16 * experts) return enqueue_kernel<Cut::kSmall, 32>(plan, stream);
  if (routes <= 32 * experts && routes <= kRoutes<48>) {
    return enqueue_kernel<Cut::kSmall, 48>(plan, stream);
  }
  if (routes <= 48 * experts) return enqueue_kernel<Cut::kSmall, 64>(plan, stream);
  enqueue_kernel<Cut::kSmall, kMaxTokens>(plan, stream);
}

CallGraphs<Plan> graphs;

void run(const MoeLayerCall& call) {
  check_call(call, {.experts = kMaxExperts,
                    .topk = kMaxTopk,
                    .hidden = kMaxWideBlocks * kBlock,
                    .intermediate = kMaxWideBlocks * kBlock,
                    .routes = kMaxRoutes});
  graphs.launch(plan_call(call), rt::Stream{call.stream}, enqueue);
}

}  // namespace
}  // namespace kb::step

KB_EXPORT int kb_run(const kb::MoeLayerCall* call, char* message, size_t size) {
  return kb::guarded(message, size, [&] { kb::step::run(*call); });
}

KB_EXPORT void kb_describe(kb::Description* out) {
  using namespace kb::step;
  *out = {.tile_m = 40,
          .tile_n = kBlock,
          .tile_k = kBlock,
          .stages = kStages<40>,
          .accumulators = 1,
          .threads = kThreads,
          .cluster = 1,
          .shared_bytes = sizeof(SharedStorage<40>),
          .tmem_columns = 0};
}
