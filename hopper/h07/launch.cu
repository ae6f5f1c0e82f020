// Host path: tokens are converted by one launch, and multiplied by a second one that starts while
// the first ends. The schedule of a shape is computed once, and a call that comes again is one
// launch of what was recorded.
#include <map>

#include "call_graphs.cuh"
#include "check_groups.cuh"
#include "convert.cuh"
#include "gemm.cuh"
#include "kept_buffer.cuh"
#include "kept_call.cuh"
#include "partial_sums_memory.cuh"
#include "schedule.cuh"
#include "splitting.cuh"
#include "weight_map.cuh"

namespace kb::step {
namespace {

struct Plan : Schedule<PartList> {
  bool split = false;
};

Plan make_plan(const std::vector<packing::Extents>& groups, uint32_t ctas) {
  const splitting::Bins bins = splitting::pack(groups, ctas);
  Plan plan;
  plan.lists = splitting::lists_of(bins);
  plan.rows.resize(groups.size());
  for (const auto& bin : bins) {
    for (const Part& part : bin) {
      uint32_t& rows = plan.rows[part.tile.group];
      rows = covered_rows(rows, part.tile, convert::kRows);
      plan.split |= part.added != 0;
    }
  }
  return plan;
}

Schedules<Plan> schedules;

// What passes between the kernels of a call, by stream: the calls on one follow each other.
struct Between {
  uint8_t* tokens = nullptr;
  gemm::PartSums part_sums = {};
  friend bool operator==(const Between&, const Between&) = default;
};
struct Memory {
  DeviceBuffer<uint8_t> tokens;
  PartSumsMemory<gemm::PartSums> part_sums;
  Between last = {};
};
std::map<void*, Memory> memory;

// All that decides what a call enqueues.
struct Request {
  KeptCall kept;
  Between between;
  friend bool operator==(const Request&, const Request&) = default;
};
CallGraphs<Request> graphs;

uint32_t cta_count() {
  return std::min(static_cast<uint32_t>(rt::sm_count()), kMaxCtas);
}

Between reserve(const GroupGemmCall& call, Memory& kept) {
  const Plan& plan = schedules.get(extents_of(call), cta_count(), make_plan);
  size_t bytes = 0;
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    bytes += slab_offset(2 * ceil_div(plan.groups[g].k, kPairK), plan.rows[g]);
  }
  return {kept.tokens.reserve(bytes), kept.part_sums.reserve(cta_count(), {call.stream})};
}

void enqueue(const Request& request, rt::Stream stream) {
  const GroupGemmCall call = request.kept.call();
  const uint32_t ctas = cta_count();
  const Plan& plan = schedules.get(extents_of(call), ctas, make_plan);
  const std::vector<packing::Extents>& extents = plan.groups;
  uint8_t* tokens = request.between.tokens;
  convert::Arguments conversion = {};
  gemm::Arguments product = {};
  product.part_sums = request.between.part_sums;
  uint32_t units = 0;
  for (size_t g = 0; g < extents.size(); ++g) {
    const auto [m, n, k] = extents[g];
    const uint32_t pairs = ceil_div(k, kPairK);
    units += plan.rows[g] / convert::kRows * pairs;
    conversion.groups[g] = {.a = reinterpret_cast<const uint8_t*>(call.a[g]),
                            .sfa = reinterpret_cast<const uint8_t*>(call.sfa[g]),
                            .tokens = tokens,
                            .m = m,
                            .k = k,
                            .rows = plan.rows[g],
                            .unit_end = units};
    product.groups[g] = {
        .weights = encode_weight_map(reinterpret_cast<const void*>(call.b[g]), n, k, gemm::kTileM),
        .sfb = reinterpret_cast<const uint8_t*>(call.sfb[g]),
        .tokens = tokens,
        .c = reinterpret_cast<f16*>(call.c[g]),
        .m = m,
        .n = n,
        .k = k,
        .rows = plan.rows[g]};
    tokens += slab_offset(2 * pairs, plan.rows[g]);
  }
  if (units == 0) return;

  rt::launch(convert::convert_tokens,
             {.grid = {units, 1, 1},
              .threads = convert::kThreads,
              .shared_bytes = sizeof(convert::SharedStorage),
              .stream = stream},
             conversion);
  bool dependent = true;
  for (const PartList& list : plan.lists) {
    product.list = list;
    rt::launch(plan.split ? gemm::multiply_groups<true> : gemm::multiply_groups<false>,
               {.grid = {ctas, 1, 1},
                .threads = gemm::kThreads,
                .shared_bytes = sizeof(gemm::SharedStorage),
                .stream = stream,
                .cooperative = plan.split,  // parts wait for other CTAs
                .dependent = dependent && !plan.split},
               product);
    dependent = false;  // of the conversion alone
  }
}

void run(const GroupGemmCall& call) {
  Memory& kept = memory[call.stream];
  Request request{KeptCall(call), kept.last};
  if (!graphs.known(request)) {
    check_groups(call, kSlabK, kGroups);
    request.between = kept.last = reserve(call, kept);
  }
  graphs.launch(request, rt::Stream{call.stream}, enqueue);
}

}  // namespace
}  // namespace kb::step

KB_EXPORT int kb_run(const kb::GroupGemmCall* call, char* message, size_t size) {
  return kb::guarded(message, size, [&] { kb::step::run(*call); });
}

KB_EXPORT void kb_describe(kb::Description* out) {
  using namespace kb::step::gemm;
  *out = {.tile_m = kTileM,
          .tile_n = kTileN,
          .tile_k = kTileK,
          .stages = kTokenSlots,
          .accumulators = 1,
          .threads = kThreads,
          .cluster = 1,
          .shared_bytes = sizeof(SharedStorage),
          .tmem_columns = 0};
}
