// Host path: tokens are converted by one launch and multiplied by a second one. The schedule of a
// shape is computed once.
#include <map>

#include "check_groups.cuh"
#include "convert.cuh"
#include "gemm.cuh"
#include "kept_buffer.cuh"
#include "schedule.cuh"
#include "weight_map.cuh"

namespace kb::step {
namespace {

using Plan = Schedule<TileList>;

Plan make_plan(const std::vector<packing::Extents>& groups, uint32_t ctas) {
  const packing::Bins bins = packing::pack(groups, ctas);
  Plan plan;
  plan.lists = packing::lists_of(bins);
  plan.rows.resize(groups.size());
  for (const auto& bin : bins) {
    for (const auto& [tile, cost] : bin) {
      uint32_t& rows = plan.rows[tile.group];
      rows = covered_rows(rows, tile, convert::kRows);
    }
  }
  return plan;
}

Schedules<Plan> schedules;

// Converted tokens, by stream: the calls on one follow each other.
std::map<void*, DeviceBuffer<uint8_t>> token_buffers;

void run(const GroupGemmCall& call) {
  check_groups(call, kSlabK);
  const rt::Stream stream{call.stream};
  const uint32_t ctas = std::min(static_cast<uint32_t>(rt::sm_count()), kMaxCtas);
  const Plan& plan = schedules.get(extents_of(call), ctas, make_plan);
  const std::vector<packing::Extents>& extents = plan.groups;

  size_t bytes = 0;
  for (size_t g = 0; g < extents.size(); ++g) {
    bytes += slab_offset(2 * ceil_div(extents[g].k, kPairK), plan.rows[g]);
  }
  uint8_t* tokens = token_buffers[stream.handle].reserve(bytes);
  convert::Arguments conversion = {};
  gemm::Arguments product = {};
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
  for (const TileList& list : plan.lists) {
    product.list = list;
    rt::launch(gemm::multiply_groups,
               {.grid = {ctas, 1, 1},
                .threads = gemm::kThreads,
                .shared_bytes = sizeof(gemm::SharedStorage),
                .stream = stream},
               product);
  }
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
          .stages = kTokenStages,
          .accumulators = 1,
          .threads = kThreads,
          .cluster = 1,
          .shared_bytes = sizeof(SharedStorage),
          .tmem_columns = 0};
}
