// Host path: two kernels, recorded as a graph that the calls that follow launch.
// Memory for what passes between them is kept for those calls, which must be on the same stream.
#include "call_graphs.cuh"
#include "fp8_map.cuh"
#include "gemm.cuh"
#include "kept_buffer.cuh"
#include "moe_checks.cuh"
#include "route_quantize.cuh"

namespace kb::step {
namespace {

// Routes per expert from which on the GEMM takes each expert for one with tokens: of 4, one in 50
// has none under uniform routing.
constexpr uint32_t kEagerRoutes = 4;

struct Buffers {
  DeviceBuffer<uint32_t> counters;     // [2, kMaxExperts]
  DeviceBuffer<uint32_t> routes;       // [e, m]
  DeviceBuffer<float> expert_weights;  // [m, topk]
  DeviceBuffer<e4m3> codes;            // [m, k]
  DeviceBuffer<float> scales;          // [k / 128, m]
};

// A call, and where what passes between its kernels is.
struct Plan {
  FusedMoeCall call;
  uint32_t* counts;
  uint32_t* readers;
  uint32_t* routes;
  float* expert_weights;
  e4m3* codes;
  float* scales;

  friend bool operator==(const Plan&, const Plan&) = default;
};

// Counters that are zero; every call leaves them so.
uint32_t* zero_counters(DeviceBuffer<uint32_t>& buffer, rt::Stream stream) {
  static uint32_t* counters = nullptr;
  if (counters == nullptr) {
    constexpr size_t kCount = 2 * kMaxExperts;
    counters = buffer.reserve(kCount);
    rt::memset_async(counters, 0, kCount * sizeof *counters, stream);
  }
  return counters;
}

Plan plan_call(const FusedMoeCall& call) {
  static Buffers buffers;
  const size_t m = call.m;
  uint32_t* counters = zero_counters(buffers.counters, rt::Stream{call.stream});
  return {.call = call,
          .counts = counters,
          .readers = counters + kMaxExperts,
          .routes = buffers.routes.reserve(m * call.e),
          .expert_weights = buffers.expert_weights.reserve(m * call.topk),
          .codes = buffers.codes.reserve(m * call.k),
          .scales = buffers.scales.reserve(m * (call.k / kFp8Block))};
}

void enqueue(const Plan& plan, rt::Stream stream) {
  const FusedMoeCall& call = plan.call;
  const auto m = static_cast<uint32_t>(call.m);
  const auto n = static_cast<uint32_t>(call.n);
  const auto k = static_cast<uint32_t>(call.k);
  const auto experts = static_cast<uint32_t>(call.e);
  const auto topk = static_cast<uint32_t>(call.topk);

  rt::launch(route_quantize::route_tokens,
             {.grid = {m, 1, 1},
              .threads = route_quantize::kThreads,
              .shared_bytes = sizeof(route_quantize::SharedStorage),
              .stream = stream},
             route_quantize::Arguments{.gating = call.gating,
                                       .hidden = call.hidden,
                                       .counts = plan.counts,
                                       .routes = plan.routes,
                                       .expert_weights = plan.expert_weights,
                                       .codes = plan.codes,
                                       .scales = plan.scales,
                                       .output = call.output,
                                       .experts = experts,
                                       .topk = topk,
                                       .m = m,
                                       .n = n,
                                       .k = k,
                                       .renormalize = call.renormalize != 0,
                                       .softcap = call.softcap});
  rt::launch(gemm::multiply_experts,
             {.grid = {n / gemm::kTileN, experts, 1},
              .threads = gemm::kThreads,
              .shared_bytes = sizeof(gemm::SharedStorage),
              .stream = stream,
              .dependent = true},
             gemm::Arguments{
                 .weights = encode_fp8_map(call.weights, uint64_t{experts} * n, k, gemm::kTileN),
                 .counts = plan.counts,
                 .readers = plan.readers,
                 .routes = plan.routes,
                 .codes = plan.codes,
                 .scales = plan.scales,
                 .weight_scales = call.weight_scales,
                 .expert_weights = plan.expert_weights,
                 .output = call.output,
                 .m = m,
                 .n = n,
                 .k = k,
                 .topk = topk,
                 .eager = uint64_t{m} * topk >= uint64_t{kEagerRoutes} * experts});
}

CallGraphs<Plan> graphs;

void run(const FusedMoeCall& call) {
  check_call(call);
  graphs.launch(plan_call(call), rt::Stream{call.stream}, enqueue);
}

}  // namespace
}  // namespace kb::step

#include "fused_moe_entry.cuh"
