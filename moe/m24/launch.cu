// Host path: one kernel, whose CTAs are all resident, recorded as a graph for the calls that
// follow. Which one, a table says by the tokens of an expert. Memory for what passes between its
// phases is kept for each stream.
#include "choice.cuh"
#include "cut.cuh"
#include "fused.cuh"
#include "kept_zeroed.cuh"
#include "pace.cuh"
#include "resident_launch.cuh"
#include "route_list_maps.cuh"
#include "sorted.cuh"
#include "sorted_cut.cuh"
#include "stream_workspaces.cuh"
#include "weight_maps.cuh"

namespace kb::step {
namespace {

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
  KeptZeroed<GridState> grid;
  DeviceBuffer<TokenRoutes> routes;  // [m]
  KeptZeroed<sorted::GridState> sorted_grid;
  DeviceBuffer<Route> sorted_routes;  // [e, m]
  DeviceBuffer<e4m3> codes;           // [m, k]
  DeviceBuffer<SectorScale> scales;   // [m, k / 128]
};

StreamWorkspaces<Workspace> workspaces;

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
  const Sizes sizes{lists ? 0 : m, lists ? m * call.e : 0, m * call.k};
  Workspace& kept = workspaces.get(call.stream, sizes);
  return {.call = call,
          .kernel = kernel,
          .grid = lists ? nullptr : kept.grid.get(stream),
          .routes = lists ? nullptr : kept.routes.reserve(sizes.routes),
          .sorted_grid = lists ? kept.sorted_grid.get(stream) : nullptr,
          .sorted_routes = lists ? kept.sorted_routes.reserve(sizes.sorted_routes) : nullptr,
          .codes = kept.codes.reserve(sizes.codes),
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
    args.scales = plan.scales->copies;  // without the copies, in the same memory
    args.grid = plan.sorted_grid;
    args.cut = grid.cut;
    args.pace = sorted::kPace<kTokens>;
    launch_resident<sorted::SharedStorage<kTokens>>(sorted::run_call<kTokens>, grid.ctas,
                                                    sorted::kThreads, stream, args);
  }
};

void enqueue(const Plan& plan, rt::Stream stream) {
  with_kernel(plan.kernel, Launch{plan, stream});
}

}  // namespace
}  // namespace kb::step

#include "one_kernel_entry.cuh"
