// Host path: one kernel, whose CTAs are all resident, recorded as a graph for the calls that
// follow. The tokens of an item follow from the routes of an expert on average. What CTAs meet at
// is kept for each stream.
#include <algorithm>
#include <map>

#include "call_graphs.cuh"
#include "kept_buffer.cuh"
#include "layer.cuh"

namespace kb::step {
namespace {

// Zero at first; every call leaves it ready for the next.
Meeting* meeting_of(rt::Stream stream) {
  static std::map<void*, DeviceBuffer<Meeting>> meetings;
  static Meeting* last = nullptr;
  const auto found = meetings.find(stream.handle);
  if (found != meetings.end()) return last = found->second.reserve(1);
  // Nothing can be allocated while the caller records a stream: it gets the one of the call before.
  if (last != nullptr && rt::recorded(stream)) return last;
  last = meetings[stream.handle].reserve(1);
  rt::memset_async(last, 0, sizeof(Meeting), stream);
  return last;
}

// A call, and where its CTAs meet.
struct Plan {
  MoeLayerCall call;
  Meeting* meeting;

  friend bool operator==(const Plan&, const Plan&) = default;
};

// [2 i, h] of each expert: a box has 8 rows of the gate, the same 8 of up, and so on.
TensorMap encode_w13(const MoeLayerCall& call) {
  const auto h = static_cast<uint64_t>(call.h);
  const auto i = static_cast<uint64_t>(call.i);
  return rt::encode_tensor_map({.element = TensorMapElement::kU8,
                                .rank = 4,
                                .address = call.w13,
                                .dims = {h, 8, 2, (2 * call.e - 1) * i / 8},
                                .strides = {h, i * h, 8 * h},
                                .box = {kBlock, 8, 2, 8},
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

template <uint32_t kTokens>
void enqueue_kernel(const Plan& plan, rt::Stream stream) {
  const MoeLayerCall& call = plan.call;
  const auto slices = static_cast<uint32_t>(call.i) / kBlock;
  const uint32_t parts = ceil_div(slices, kSlices);
  const auto routes = static_cast<uint64_t>(call.m) * call.topk;
  const auto sms = static_cast<uint32_t>(rt::sm_count());
  rt::launch(run_layer<kTokens>,
             {.grid = {static_cast<uint32_t>(std::min<uint64_t>(sms, routes * slices)), 1, 1},
              .threads = kThreads,
              .shared_bytes = sizeof(SharedStorage<kTokens>),
              .stream = stream,
              .cooperative = true},
             Arguments{.w13 = encode_w13(call),
                       .w2 = encode_w2(call),
                       .hidden = call.hidden,
                       .ids = call.ids,
                       .expert_weights = call.expert_weights,
                       .w13_scales = call.w13_scales,
                       .w2_scales = call.w2_scales,
                       .output = call.output,
                       .meeting = plan.meeting,
                       .m = static_cast<uint32_t>(call.m),
                       .topk = static_cast<uint32_t>(call.topk),
                       .experts = static_cast<uint32_t>(call.e),
                       .blocks = static_cast<uint32_t>(call.h) / kBlock,
                       .slices = slices,
                       .item_slices = ceil_div(slices, parts),
                       .parts = parts});
}

// Tokens of an item: more than most experts have, whose weights are then read once.
void enqueue(const Plan& plan, rt::Stream stream) {
  const int64_t routes = int64_t{plan.call.m} * plan.call.topk;
  if (routes <= 4 * plan.call.e) return enqueue_kernel<8>(plan, stream);
  if (routes <= 8 * plan.call.e) return enqueue_kernel<16>(plan, stream);
  if (routes <= 16 * plan.call.e) return enqueue_kernel<32>(plan, stream);
  enqueue_kernel<48>(plan, stream);
}

CallGraphs<Plan> graphs;

void run(const MoeLayerCall& call) {
  check_call(call, {.experts = kMaxExperts,
                    .topk = kMaxTopk,
                    .hidden = kBlocks * kBlock,
                    .intermediate = 1 << 20,
                    .routes = kMaxRoutes});
  const rt::Stream stream{call.stream};
  graphs.launch({call, meeting_of(stream)}, stream, enqueue);
}

}  // namespace
}  // namespace kb::step

KB_EXPORT int kb_run(const kb::MoeLayerCall* call, char* message, size_t size) {
  return kb::guarded(message, size, [&] { kb::step::run(*call); });
}

KB_EXPORT void kb_describe(kb::Description* out) {
  using namespace kb::step;
  *out = {.tile_m = 8,
          .tile_n = kBlock,
          .tile_k = kBlock,
          .stages = kStages<8>,
          .accumulators = 1,
          .threads = kThreads,
          .cluster = 1,
          .shared_bytes = sizeof(SharedStorage<8>),
          .tmem_columns = 0};
}
