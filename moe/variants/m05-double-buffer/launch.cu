// Host path: four kernels, recorded as a graph that the calls that follow launch.
// Memory for what passes between them is kept for those calls, which must be on the same stream.
#include "call_graphs.cuh"
#include "count_layout.cuh"
#include "fp8_map.cuh"
#include "gemm.cuh"
#include "kept_buffer.cuh"
#include "moe_checks.cuh"
#include "quantize_sort_gather.cuh"
#include "route.cuh"

namespace kb::step {
namespace {

// A row is one route, a pair of token and expert, in the order of the experts.
struct Buffers {
  DeviceBuffer<uint32_t> ids;          // [m, topk]
  DeviceBuffer<float> expert_weights;  // [m, topk]
  DeviceBuffer<uint32_t> offsets;      // [e + 1]
  DeviceBuffer<uint32_t> next_rows;    // [e]
  DeviceBuffer<uint32_t> routes;       // [rows]
  DeviceBuffer<e4m3> sorted_codes;     // [rows, k]
  DeviceBuffer<float> sorted_scales;   // [k / 128, rows]
};

// A call, and where what passes between its kernels is.
struct Plan {
  FusedMoeCall call;
  uint32_t* ids;
  float* expert_weights;
  uint32_t* offsets;
  uint32_t* next_rows;
  uint32_t* routes;
  e4m3* sorted_codes;
  float* sorted_scales;

  friend bool operator==(const Plan&, const Plan&) = default;
};

Plan plan_call(const FusedMoeCall& call) {
  static Buffers buffers;
  const size_t rows = size_t(call.m) * call.topk;
  const size_t experts = call.e;
  rt::reserve_persisting_l2(rows * call.k);
  return {.call = call,
          .ids = buffers.ids.reserve(rows),
          .expert_weights = buffers.expert_weights.reserve(rows),
          .offsets = buffers.offsets.reserve(experts + 1),
          .next_rows = buffers.next_rows.reserve(experts),
          .routes = buffers.routes.reserve(rows),
          .sorted_codes = buffers.sorted_codes.reserve(rows * call.k),
          .sorted_scales = buffers.sorted_scales.reserve(rows * (call.k / kFp8Block))};
}

void enqueue(const Plan& plan, rt::Stream stream) {
  const FusedMoeCall& call = plan.call;
  const auto m = static_cast<uint32_t>(call.m);
  const auto n = static_cast<uint32_t>(call.n);
  const auto k = static_cast<uint32_t>(call.k);
  const auto experts = static_cast<uint32_t>(call.e);
  const auto topk = static_cast<uint32_t>(call.topk);
  const uint32_t rows = m * topk;

  const rt::PersistingL2 activations{.base = plan.sorted_codes, .bytes = size_t{rows} * k};

  rt::launch(route::route_tokens,
             {.grid = {m, 1, 1}, .threads = route::kThreads, .shared_bytes = 0, .stream = stream},
             route::Arguments{.gating = call.gating,
                              .ids = plan.ids,
                              .expert_weights = plan.expert_weights,
                              .experts = experts,
                              .topk = topk,
                              .renormalize = call.renormalize != 0,
                              .softcap = call.softcap});
  rt::launch(count_layout::lay_out_routes,
             {.grid = {1, 1, 1},
              .threads = count_layout::kThreads,
              .shared_bytes = sizeof(count_layout::SharedStorage),
              .stream = stream},
             count_layout::Arguments{.ids = plan.ids,
                                     .offsets = plan.offsets,
                                     .next_rows = plan.next_rows,
                                     .experts = experts,
                                     .routes = rows});
  rt::launch(quantize_sort_gather::prepare_rows,
             {.grid = {m, 1, 1},
              .threads = quantize_sort_gather::kThreads,
              .shared_bytes = sizeof(quantize_sort_gather::SharedStorage),
              .stream = stream,
              .persisting_l2 = activations},
             quantize_sort_gather::Arguments{.hidden = call.hidden,
                                             .ids = plan.ids,
                                             .next_rows = plan.next_rows,
                                             .routes = plan.routes,
                                             .sorted_codes = plan.sorted_codes,
                                             .sorted_scales = plan.sorted_scales,
                                             .output = call.output,
                                             .rows = rows,
                                             .topk = topk,
                                             .n = n,
                                             .k = k});
  rt::launch(gemm::multiply_experts,
             {.grid = {n / gemm::kTileN, experts, 1},
              .threads = gemm::kThreads,
              .shared_bytes = sizeof(gemm::SharedStorage),
              .stream = stream,
              .persisting_l2 = activations},
             gemm::Arguments{
                 .weights = encode_fp8_map(call.weights, uint64_t{experts} * n, k, gemm::kTileN),
                 .offsets = plan.offsets,
                 .codes = plan.sorted_codes,
                 .scales = plan.sorted_scales,
                 .weight_scales = call.weight_scales,
                 .routes = plan.routes,
                 .expert_weights = plan.expert_weights,
                 .output = call.output,
                 .rows = rows,
                 .n = n,
                 .k = k,
                 .topk = topk});
}

CallGraphs<Plan> graphs;

void run(const FusedMoeCall& call) {
  check_call(call);
  graphs.launch(plan_call(call), rt::Stream{call.stream}, enqueue);
}

}  // namespace
}  // namespace kb::step

#include "fused_moe_entry.cuh"
