// Host path: one kernel, whose CTAs are all resident, recorded as a graph for the calls that
// follow. Memory for what passes between its phases is kept for those calls, which must be on one
// stream.
#include "cut.cuh"
#include "fused.cuh"
#include "kept_zeroed.cuh"
#include "resident_launch.cuh"
#include "weight_maps.cuh"

namespace kb::step {
namespace {

struct Buffers {
  KeptZeroed<GridState> grid;
  DeviceBuffer<TokenRoutes> routes;  // [m]
  DeviceBuffer<e4m3> codes;          // [m, k]
  DeviceBuffer<SectorScale> scales;  // [m, k / 128]
};

// A call, and where what passes between its phases is.
struct Plan {
  FusedMoeCall call;
  GridState* grid;
  TokenRoutes* routes;
  e4m3* codes;
  SectorScale* scales;

  friend bool operator==(const Plan&, const Plan&) = default;
};

Plan plan_call(const FusedMoeCall& call) {
  static Buffers buffers;
  const size_t m = call.m;
  return {.call = call,
          .grid = buffers.grid.get(rt::Stream{call.stream}),
          .routes = buffers.routes.reserve(m),
          .codes = buffers.codes.reserve(m * call.k),
          .scales = buffers.scales.reserve(m * (call.k / kFp8Block))};
}

template <uint32_t kTokens>
void enqueue_kernel(const Plan& plan, rt::Stream stream) {
  constexpr uint32_t kPace = 3;
  const Grid grid = cut_call(plan.call, kTokens);
  auto args = arguments_of<Arguments>(plan.call);
  args.weights = encode_weights(plan.call);
  args.weight_scales = encode_weight_scales(plan.call);
  args.routes = plan.routes;
  args.codes = plan.codes;
  args.scales = plan.scales;
  args.grid = plan.grid;
  args.cut = grid.cut;
  args.pace = kPace;
  launch_resident<SharedStorage<kTokens>>(fused::run_call<kTokens>, grid.ctas, kThreads, stream,
                                          args);
}

// Tokens of an item: more than the fullest expert usually has, whose weights are then read once.
void enqueue(const Plan& plan, rt::Stream stream) {
  const double mean = double(plan.call.m) * plan.call.topk / plan.call.e;
  if (mean <= 5) return enqueue_kernel<16>(plan, stream);
  if (mean <= 17) return enqueue_kernel<32>(plan, stream);
  enqueue_kernel<64>(plan, stream);
}

}  // namespace
}  // namespace kb::step

#include "one_kernel_entry.cuh"
