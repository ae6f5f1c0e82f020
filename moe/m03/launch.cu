// Host path: a memset and four kernels on one stream, waiting for the stream after each kernel.
// Memory for what passes between them is kept for the calls that follow, which must be on the same
// stream.
#include "count_layout.cuh"
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

void run(const FusedMoeCall& call) {
  check_call(call);
  const rt::Stream stream{call.stream};
  const auto m = static_cast<uint32_t>(call.m);
  const auto n = static_cast<uint32_t>(call.n);
  const auto k = static_cast<uint32_t>(call.k);
  const auto experts = static_cast<uint32_t>(call.e);
  const auto topk = static_cast<uint32_t>(call.topk);
  const uint32_t rows = m * topk;
  const uint32_t blocks = k / kFp8Block;

  static Buffers buffers;
  uint32_t* ids = buffers.ids.reserve(rows);
  float* expert_weights = buffers.expert_weights.reserve(rows);
  uint32_t* offsets = buffers.offsets.reserve(experts + 1);
  uint32_t* next_rows = buffers.next_rows.reserve(experts);
  uint32_t* routes = buffers.routes.reserve(rows);
  e4m3* sorted_codes = buffers.sorted_codes.reserve(size_t{rows} * k);
  float* sorted_scales = buffers.sorted_scales.reserve(size_t{rows} * blocks);

  rt::memset_async(call.output, 0, size_t{m} * n * sizeof *call.output, stream);
  rt::launch(route::route_tokens,
             {.grid = {m, 1, 1}, .threads = route::kThreads, .shared_bytes = 0, .stream = stream},
             route::Arguments{.gating = call.gating,
                              .ids = ids,
                              .expert_weights = expert_weights,
                              .experts = experts,
                              .topk = topk,
                              .renormalize = call.renormalize != 0,
                              .softcap = call.softcap});
  rt::stream_synchronize(stream);
  rt::launch(count_layout::lay_out_routes,
             {.grid = {1, 1, 1},
              .threads = count_layout::kThreads,
              .shared_bytes = sizeof(count_layout::SharedStorage),
              .stream = stream},
             count_layout::Arguments{.ids = ids,
                                     .offsets = offsets,
                                     .next_rows = next_rows,
                                     .experts = experts,
                                     .routes = rows});
  rt::stream_synchronize(stream);
  rt::launch(quantize_sort_gather::prepare_rows,
             {.grid = {m, 1, 1},
              .threads = quantize_sort_gather::kThreads,
              .shared_bytes = sizeof(quantize_sort_gather::SharedStorage),
              .stream = stream},
             quantize_sort_gather::Arguments{.hidden = call.hidden,
                                             .ids = ids,
                                             .next_rows = next_rows,
                                             .routes = routes,
                                             .sorted_codes = sorted_codes,
                                             .sorted_scales = sorted_scales,
                                             .rows = rows,
                                             .topk = topk,
                                             .k = k});
  rt::stream_synchronize(stream);
  rt::launch(gemm::multiply_experts,
             {.grid = {experts, n / gemm::kTileN, 1},
              .threads = gemm::kThreads,
              .shared_bytes = sizeof(gemm::SharedStorage),
              .stream = stream},
             gemm::Arguments{.offsets = offsets,
                             .codes = sorted_codes,
                             .scales = sorted_scales,
                             .weights = call.weights,
                             .weight_scales = call.weight_scales,
                             .routes = routes,
                             .expert_weights = expert_weights,
                             .output = call.output,
                             .rows = rows,
                             .n = n,
                             .k = k,
                             .topk = topk});
  rt::stream_synchronize(stream);
}

}  // namespace
}  // namespace kb::step

#include "fused_moe_entry.cuh"
