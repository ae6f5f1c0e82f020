// Host path: one kernel, whose CTAs are all resident, recorded as a graph for the calls that
// follow. Memory for what passes between its phases is kept for those calls, which must be on one
// stream.
#include <algorithm>

#include "call_graphs.cuh"
#include "fp8_map.cuh"
#include "fused.cuh"
#include "kept_buffer.cuh"
#include "moe_checks.cuh"

namespace kb::step {
namespace {

struct Buffers {
  DeviceBuffer<uint32_t> barrier;
  DeviceBuffer<TokenRoutes> routes;  // [m]
  DeviceBuffer<e4m3> codes;          // [m, k]
  DeviceBuffer<SectorScale> scales;  // [m, k / 128]
};

// A call, and where what passes between its phases is.
struct Plan {
  FusedMoeCall call;
  uint32_t* barrier;
  TokenRoutes* routes;
  e4m3* codes;
  SectorScale* scales;

  friend bool operator==(const Plan&, const Plan&) = default;
};

// A word that is zero at first; every call leaves it ready for the next.
uint32_t* new_barrier(DeviceBuffer<uint32_t>& buffer, rt::Stream stream) {
  static uint32_t* barrier = nullptr;
  if (barrier == nullptr) {
    barrier = buffer.reserve(1);
    rt::memset_async(barrier, 0, sizeof *barrier, stream);
  }
  return barrier;
}

Plan plan_call(const FusedMoeCall& call) {
  static Buffers buffers;
  const size_t m = call.m;
  return {.call = call,
          .barrier = new_barrier(buffers.barrier, rt::Stream{call.stream}),
          .routes = buffers.routes.reserve(m),
          .codes = buffers.codes.reserve(m * call.k),
          .scales = buffers.scales.reserve(m * (call.k / kFp8Block))};
}

// How a call is cut into items.
struct Cut {
  uint32_t ctas;
  uint32_t item_n, item_k;  // blocks
  uint32_t parts_n, parts;  // of an expert
  uint32_t covered;
};

Cut cut_call(const FusedMoeCall& call, uint32_t tokens) {
  const uint32_t blocks_n = call.n / kTileN;
  const uint32_t blocks_k = call.k / kTileK;
  const auto sms = static_cast<uint32_t>(rt::sm_count());
  const uint64_t routes = uint64_t(call.m) * call.topk;
  // Pieces of up to `tokens` tokens: one for each active expert, more for those that are full.
  const uint64_t pieces = std::min<uint64_t>(call.e, routes) + routes / tokens;
  Cut cut;
  // Tokens stay resident for several blocks of outputs only if all their blocks of K fit.
  const uint32_t wanted_n = tokens == 16 ? 2 : 4;
  const bool resident = blocks_k <= kSlots && pieces * ceil_div(blocks_n, wanted_n) >= sms;
  cut.item_n = resident ? std::min(wanted_n, blocks_n) : 1;
  cut.item_k = blocks_k;
  cut.parts_n = ceil_div(blocks_n, cut.item_n);
  // Few items: K is cut as well, but where a token's sums of two experts meet, their order would
  // show in the last bits.
  if (call.topk > 2 && pieces * cut.parts_n < sms) {
    const auto wanted = static_cast<uint32_t>(sms / (pieces * cut.parts_n));
    cut.item_k = ceil_div(blocks_k, std::min(wanted, blocks_k));
  }
  cut.parts = cut.parts_n * ceil_div(blocks_k, cut.item_k);
  cut.ctas = static_cast<uint32_t>(
      std::min<uint64_t>(sms, std::max<uint64_t>(pieces * cut.parts, ceil_div(call.m, 4))));
  // Weights are requested ahead of the routing where many experts will have tokens.
  const bool eager = 2 * routes >= uint64_t(call.e);
  cut.covered = eager ? std::min<uint32_t>(call.e, cut.ctas / cut.parts) : 0;
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

template <uint32_t kTokens>
void enqueue_kernel(const Plan& plan, rt::Stream stream) {
  constexpr uint32_t kPace = 3;
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
                       .barrier = plan.barrier,
                       .m = static_cast<uint32_t>(call.m),
                       .n = n,
                       .k = k,
                       .experts = experts,
                       .topk = static_cast<uint32_t>(call.topk),
                       .item_n = cut.item_n,
                       .item_k = cut.item_k,
                       .parts_n = cut.parts_n,
                       .parts = cut.parts,
                       .covered = cut.covered,
                       .pace = kPace,
                       .renormalize = call.renormalize != 0,
                       .softcap = call.softcap});
}

// Tokens of an item: more than the fullest expert usually has, whose weights are then read once.
void enqueue(const Plan& plan, rt::Stream stream) {
  const double mean = double(plan.call.m) * plan.call.topk / plan.call.e;
  if (mean <= 5) return enqueue_kernel<16>(plan, stream);
  if (mean <= 17) return enqueue_kernel<32>(plan, stream);
  enqueue_kernel<64>(plan, stream);
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
