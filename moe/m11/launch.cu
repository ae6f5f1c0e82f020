// Host path: one kernel, whose CTAs are all resident, recorded as a graph for the calls that
// follow. Which one, a table says by the tokens of an expert. Memory for what passes between its
// phases is kept for those calls, which must be on one stream.
#include "choice.cuh"
#include "cut.cuh"
#include "fused.cuh"
#include "kept_zeroed.cuh"
#include "pace.cuh"
#include "resident_launch.cuh"
#include "route_list_maps.cuh"
#include "sorted.cuh"
#include "sorted_cut.cuh"
#include "weight_maps.cuh"

namespace kb::step {
namespace {

struct Buffers {
  KeptZeroed<GridState> grid;
  DeviceBuffer<TokenRoutes> routes;  // [m]
  KeptZeroed<sorted::GridState> sorted_grid;
  DeviceBuffer<Route> sorted_routes;  // [e, m]
  DeviceBuffer<e4m3> codes;           // [m, k]
  DeviceBuffer<SectorScale> scales;   // [m, k / 128]
};

// A call, and where what passes between its phases is.
struct Plan {
  FusedMoeCall call;
  Kernel kernel;
  GridState* grid;
  TokenRoutes* routes;
  sorted::GridState* sorted_grid;
  Route* sorted_routes;
  e4m3* codes;
  SectorScale* scales;

  friend bool operator==(const Plan&, const Plan&) = default;
};

Plan plan_call(const FusedMoeCall& call) {
  const rt::Stream stream{call.stream};
  const size_t m = call.m;
  const Kernel kernel = kernel_for(call);
  const bool lists = makes_lists(kernel);
  static Buffers kept;
  return {.call = call,
          .kernel = kernel,
          .grid = lists ? nullptr : kept.grid.get(stream),
          .routes = lists ? nullptr : kept.routes.reserve(m),
          .sorted_grid = lists ? kept.sorted_grid.get(stream) : nullptr,
          .sorted_routes = lists ? kept.sorted_routes.reserve(m * call.e) : nullptr,
          .codes = kept.codes.reserve(m * call.k),
          .scales = kept.scales.reserve(m * (call.k / kFp8Block))};
}

// Launches the kernel for items of up to kTokens tokens.
struct Launch {
  const Plan& plan;
  rt::Stream stream;

  template <uint32_t kTokens>
  void resident() const {
    const Grid grid = cut_call(plan.call, kTokens);
    auto args = arguments_of<Arguments>(plan.call);
    args.weights = encode_weights(plan.call);
    args.weight_scales = encode_weight_scales(plan.call);
    args.routes = plan.routes;
    args.codes = plan.codes;
    args.scales = plan.scales;
    args.grid = plan.grid;
    args.cut = grid.cut;
    args.pace = kPace<kTokens>;
    launch_resident<SharedStorage<kTokens>>(fused::run_call<kTokens>, grid.ctas, kThreads, stream,
                                            args);
  }

  template <uint32_t kTokens>
  void lists() const {
    const Grid grid = sorted::cut_call(plan.call, kTokens);
    auto args = arguments_of<sorted::Arguments>(plan.call);
    args.weights = encode_weights_in_fours(plan.call, sorted::kRowGroup);
    args.weight_scales = encode_weight_scales(plan.call);
    args.routes = plan.sorted_routes;
    args.codes = plan.codes;
    args.scales = plan.scales;
    args.grid = plan.sorted_grid;
    args.cut = grid.cut;
    args.pace = sorted::kPace<kTokens>;
    launch_resident<sorted::SharedStorage<kTokens>>(sorted::run_call, grid.ctas, sorted::kThreads,
                                                    stream, args);
  }
};

void enqueue(const Plan& plan, rt::Stream stream) {
  with_kernel(plan.kernel, Launch{plan, stream});
}

}  // namespace
}  // namespace kb::step

#include "one_kernel_entry.cuh"
