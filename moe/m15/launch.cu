// Host path: one kernel, whose CTAs are all resident, recorded as a graph for the calls that
// follow. Which one, a table says by the tokens of an expert. Memory for what passes between its
// phases is kept for each stream.
#include <algorithm>
#include <map>

#include "call_graphs.cuh"
#include "fp8_map.cuh"
#include "fused.cuh"
#include "kept_buffer.cuh"
#include "moe_checks.cuh"
#include "sorted.cuh"

namespace kb::step {
namespace {

// The kernels, by the routes that an expert has on average, M topk / E: few tokens stay resident
// and each CTA looks for them; of many, lists are made.
enum class Kernel { kResident16, kResident32, kLists64, kLists80, kLists144 };
struct Choice {
  double most_routes;
  Kernel kernel;
};
constexpr Choice kChoices[] = {
    {5, Kernel::kResident16},
    {17, Kernel::kResident32},
    {40, Kernel::kLists64},
    {72, Kernel::kLists80},
};

Kernel kernel_for(const FusedMoeCall& call) {
  const double routes = double(call.m) * call.topk / call.e;
  for (const Choice& choice : kChoices) {
    if (routes <= choice.most_routes) return choice.kernel;
  }
  return Kernel::kLists144;
}

bool makes_lists(Kernel kernel) {
  return kernel != Kernel::kResident16 && kernel != Kernel::kResident32;
}

// Zero at first; every call leaves it ready for the next.
template <typename Meeting>
class KeptMeeting {
 public:
  Meeting* get(rt::Stream stream) {
    if (meeting_ == nullptr) {
      meeting_ = buffer_.reserve(1);
      rt::memset_async(meeting_, 0, sizeof *meeting_, stream);
    }
    return meeting_;
  }

 private:
  DeviceBuffer<Meeting> buffer_;
  Meeting* meeting_ = nullptr;
};

// Elements of what a call keeps, of either kind of routes.
struct Sizes {
  size_t routes = 0, sorted_routes = 0, codes = 0;

  bool within(const Sizes& kept) const {
    return routes <= kept.routes && sorted_routes <= kept.sorted_routes && codes <= kept.codes;
  }
  void raise_to(const Sizes& other) {
    routes = std::max(routes, other.routes);
    sorted_routes = std::max(sorted_routes, other.sorted_routes);
    codes = std::max(codes, other.codes);
  }
};

// What calls on one stream keep.
struct Workspace {
  Sizes sizes;
  KeptMeeting<Meeting> meeting;
  DeviceBuffer<TokenRoutes> routes;  // [m]
  KeptMeeting<sorted::Meeting> sorted_meeting;
  DeviceBuffer<sorted::Route> sorted_routes;  // [e, m]
  DeviceBuffer<e4m3> codes;                   // [m, k]
  DeviceBuffer<SectorScale> scales;           // [m, k / 128]
};

std::map<void*, Workspace> workspaces;  // by stream
Workspace* last_used = nullptr;

// The stream's own. Nothing can be allocated while the caller records a stream: unless its own is
// large enough, such a call gets the workspace of the call before.
Workspace& workspace_of(const FusedMoeCall& call, const Sizes& sizes) {
  if (last_used != nullptr && rt::recorded(rt::Stream{call.stream})) {
    const auto own = workspaces.find(call.stream);
    if (own == workspaces.end() || !sizes.within(own->second.sizes)) return *last_used;
  }
  last_used = &workspaces[call.stream];
  last_used->sizes.raise_to(sizes);
  return *last_used;
}

// A call, and where what passes between its phases is.
struct Plan {
  FusedMoeCall call;
  Kernel kernel;
  Meeting* meeting;
  TokenRoutes* routes;
  sorted::Meeting* sorted_meeting;
  sorted::Route* sorted_routes;
  e4m3* codes;
  SectorScale* scales;

  friend bool operator==(const Plan&, const Plan&) = default;
};

Plan plan_call(const FusedMoeCall& call) {
  const rt::Stream stream{call.stream};
  const size_t m = call.m;
  const Kernel kernel = kernel_for(call);
  const bool lists = makes_lists(kernel);
  const Sizes sizes{lists ? 0 : m, lists ? m * call.e : 0, m * call.k};
  Workspace& kept = workspace_of(call, sizes);
  return {.call = call,
          .kernel = kernel,
          .meeting = lists ? nullptr : kept.meeting.get(stream),
          .routes = lists ? nullptr : kept.routes.reserve(sizes.routes),
          .sorted_meeting = lists ? kept.sorted_meeting.get(stream) : nullptr,
          .sorted_routes = lists ? kept.sorted_routes.reserve(sizes.sorted_routes) : nullptr,
          .codes = kept.codes.reserve(sizes.codes),
          .scales = kept.scales.reserve(m * (call.k / kFp8Block))};
}

// How a call is cut into items.
struct Cut {
  uint32_t ctas;
  Parts coarse, fine, crowded;
  uint32_t fine_pieces;
  uint32_t covered;
};

Parts parts_of(uint32_t blocks_n, uint32_t blocks_k, uint32_t item_n, uint32_t item_k) {
  const uint32_t along_n = ceil_div(blocks_n, item_n);
  return {item_n, item_k, along_n, along_n * ceil_div(blocks_k, item_k)};
}

Cut cut_call(const FusedMoeCall& call, uint32_t tokens) {
  constexpr uint32_t kFineK = 8;  // blocks of K of a fine item
  const uint32_t blocks_n = call.n / kTileN;
  const uint32_t blocks_k = call.k / kTileK;
  const auto sms = static_cast<uint32_t>(rt::sm_count());
  const uint64_t routes = uint64_t(call.m) * call.topk;
  // Pieces of up to `tokens` tokens: one for each active expert, more for those that are full.
  const uint64_t pieces = std::min<uint64_t>(call.e, routes) + routes / tokens;
  // K is cut only where a token's sums of several experts meet in any case: their order shows in
  // the last bits.
  const bool cut_k = call.topk > 2;
  // Tokens stay resident for several blocks of outputs only if all their blocks of K fit.
  const uint32_t wanted_n = tokens == 16 ? 2 : 4;
  const bool resident = blocks_k <= kSlots && pieces * ceil_div(blocks_n, wanted_n) >= sms;
  const uint32_t item_n = resident ? std::min(wanted_n, blocks_n) : 1;
  const uint64_t items = pieces * ceil_div(blocks_n, item_n);
  uint32_t item_k = blocks_k;
  if (cut_k && items < sms) {
    item_k = ceil_div(blocks_k, std::min(static_cast<uint32_t>(sms / items), blocks_k));
  }
  Cut cut;
  cut.coarse = parts_of(blocks_n, blocks_k, item_n, item_k);
  const uint32_t fine_k = cut_k ? std::min(item_k, kFineK) : item_k;
  cut.fine = parts_of(blocks_n, blocks_k, 1, fine_k);
  cut.crowded = parts_of(blocks_n, blocks_k, item_n, fine_k);
  cut.ctas = static_cast<uint32_t>(
      std::min<uint64_t>(sms, std::max<uint64_t>(pieces * cut.coarse.all, ceil_div(call.m, 4))));
  // About one coarse item of each CTA. Many tokens cost more to gather once more than an even end
  // gains.
  cut.fine_pieces = tokens == 16 ? ceil_div(cut.ctas, cut.coarse.all) : 0;
  // Weights are requested ahead of the routing where many experts will have tokens.
  const bool eager = routes >= uint64_t(call.e);
  cut.covered = eager ? std::min<uint32_t>(call.e, cut.ctas / cut.coarse.all) : 0;
  return cut;
}

// All scales in one row, of which a box starts anywhere.
TensorMap encode_scale_map(const FusedMoeCall& call) {
  const uint64_t count = uint64_t(call.e) * (call.n / kFp8Block) * (call.k / kFp8Block);
  return rt::encode_tensor_map({.element = TensorMapElement::kF32,
                                .rank = 2,
                                .address = call.weight_scales,
                                .dims = {count, 1},
                                .strides = {(count * sizeof(float) + 15) / 16 * 16},
                                .box = {kScaleBox, 1}});
}

Cut cut_sorted_call(const FusedMoeCall& call, uint32_t tokens) {
  const uint32_t blocks_n = call.n / kTileN;
  const uint32_t blocks_k = call.k / kTileK;
  const auto sms = static_cast<uint32_t>(rt::sm_count());
  // Pieces at least: an expert's routes are cut only if they are too many.
  const auto experts = static_cast<uint32_t>(call.e);
  const uint64_t items = uint64_t{experts} * ceil_div(blocks_n, sorted::kItemN);
  const bool cut_k = call.topk > 2;  // as in cut_call
  uint32_t item_k = blocks_k;
  if (cut_k && items < sms) {
    item_k = ceil_div(blocks_k, std::min(static_cast<uint32_t>(sms / items), blocks_k));
  }
  Cut cut;
  cut.ctas = sms;
  cut.coarse = parts_of(blocks_n, blocks_k, sorted::kItemN, item_k);
  cut.fine = parts_of(blocks_n, blocks_k, sorted::kItemN,
                      cut_k ? std::min(item_k, ceil_div(blocks_k, 4)) : item_k);
  // Where items last long, the last quarter of a round is cut for an even end.
  cut.fine_pieces = tokens > 64 ? ceil_div(cut.ctas, 4 * cut.coarse.all) : 0;
  cut.covered = std::min(experts, cut.ctas / cut.coarse.all);
  return cut;
}

// Row 8 j + g of a box is row 4 g + j of the weights' 32.
TensorMap encode_sorted_weights(const FusedMoeCall& call) {
  const auto k = static_cast<uint64_t>(call.k);
  return rt::encode_tensor_map({.element = TensorMapElement::kU8,
                                .rank = 3,
                                .address = call.weights,
                                .dims = {k, uint64_t(call.e) * call.n / 4, 4},
                                .strides = {4 * k, k},
                                .box = {kTileK, sorted::kRowGroup, 4},
                                .swizzle = TensorMapSwizzle::k128B});
}

template <uint32_t kTokens>
void enqueue_sorted(const Plan& plan, rt::Stream stream) {
  constexpr uint32_t kPace = kTokens == 64 ? 2 : 1;
  const FusedMoeCall& call = plan.call;
  const Cut cut = cut_sorted_call(call, kTokens);
  rt::launch(sorted::run_call<kTokens>,
             {.grid = {cut.ctas, 1, 1},
              .threads = sorted::kThreads,
              .shared_bytes = sizeof(sorted::SharedStorage<kTokens>),
              .stream = stream,
              .cooperative = true},
             sorted::Arguments{.weights = encode_sorted_weights(call),
                               .weight_scales = encode_scale_map(call),
                               .hidden = call.hidden,
                               .gating = call.gating,
                               .output = call.output,
                               .routes = plan.sorted_routes,
                               .codes = plan.codes,
                               .scales = plan.scales,
                               .meeting = plan.sorted_meeting,
                               .m = static_cast<uint32_t>(call.m),
                               .n = static_cast<uint32_t>(call.n),
                               .k = static_cast<uint32_t>(call.k),
                               .experts = static_cast<uint32_t>(call.e),
                               .topk = static_cast<uint32_t>(call.topk),
                               .coarse = cut.coarse,
                               .fine = cut.fine,
                               .fine_pieces = cut.fine_pieces,
                               .covered = cut.covered,
                               .pace = kPace,
                               .renormalize = call.renormalize != 0,
                               .softcap = call.softcap});
}

template <uint32_t kTokens>
void enqueue_kernel(const Plan& plan, rt::Stream stream) {
  constexpr uint32_t kPace = kTokens == 16 ? 3 : 2;
  const FusedMoeCall& call = plan.call;
  const auto n = static_cast<uint32_t>(call.n);
  const auto k = static_cast<uint32_t>(call.k);
  const auto experts = static_cast<uint32_t>(call.e);
  const Cut cut = cut_call(call, kTokens);
  rt::launch(fused::run_call<kTokens>,
             {.grid = {cut.ctas, 1, 1},
              .threads = kThreads,
              .shared_bytes = sizeof(SharedStorage<kTokens>),
              .stream = stream,
              .cooperative = true},
             Arguments{.weights = encode_fp8_map(call.weights, uint64_t{experts} * n, k, kTileN),
                       .weight_scales = encode_scale_map(call),
                       .hidden = call.hidden,
                       .gating = call.gating,
                       .output = call.output,
                       .routes = plan.routes,
                       .codes = plan.codes,
                       .scales = plan.scales,
                       .meeting = plan.meeting,
                       .m = static_cast<uint32_t>(call.m),
                       .n = n,
                       .k = k,
                       .experts = experts,
                       .topk = static_cast<uint32_t>(call.topk),
                       .coarse = cut.coarse,
                       .fine = cut.fine,
                       .crowded = cut.crowded,
                       .fine_pieces = cut.fine_pieces,
                       .covered = cut.covered,
                       .pace = kPace,
                       .renormalize = call.renormalize != 0,
                       .softcap = call.softcap});
}

void enqueue(const Plan& plan, rt::Stream stream) {
  switch (plan.kernel) {
    case Kernel::kResident16:
      return enqueue_kernel<16>(plan, stream);
    case Kernel::kResident32:
      return enqueue_kernel<32>(plan, stream);
    case Kernel::kLists64:
      return enqueue_sorted<64>(plan, stream);
    case Kernel::kLists80:
      return enqueue_sorted<80>(plan, stream);
    case Kernel::kLists144:
      return enqueue_sorted<144>(plan, stream);
  }
}

CallGraphs<Plan> graphs;

void run(const FusedMoeCall& call) {
  check_call(call);
  graphs.launch(plan_call(call), rt::Stream{call.stream}, enqueue);
}

}  // namespace
}  // namespace kb::step

KB_EXPORT int kb_run(const kb::FusedMoeCall* call, char* message, size_t size) {
  return kb::guarded(message, size, [&] { kb::step::run(*call); });
}

KB_EXPORT void kb_describe(kb::Description* out) {
  using namespace kb::step;
  *out = {.tile_m = 16,
          .tile_n = kTileN,
          .tile_k = kTileK,
          .stages = kStages<16>,
          .accumulators = 1,
          .threads = kThreads,
          .cluster = 1,
          .shared_bytes = sizeof(SharedStorage<16>),
          .tmem_columns = 0};
}
