// Where an expert has many tokens: what comes before the products. All warps route, and those
// that multiply quantize, too.
#pragma once

#include "grid_barrier.cuh"
#include "quantize_units.cuh"
#include "sorted_route.cuh"
#include "zeroing.cuh"

namespace kb::step::sorted {

inline constexpr uint32_t kUnitsAtOnce = 4;
inline constexpr uint32_t kUnitsAhead = 8;

// All but the load warp: routes and quantizes the CTA's tokens and waits for the other CTAs.
// Returns the counts.
template <uint32_t kTokens>
KB_DEVICE const Count* prepare_tokens(SharedStorage<kTokens>& /*shared*/, const Arguments& args) {
  const uint32_t warp = ptx::warp_index();
  const bool multiplies = warp < kMultiplyWarps;
  float logits[kLogits];
  Vector values[kUnitsAhead];
  const uint32_t token = first_token(ListRoutes::kWarps);
  if (token < args.m && args.experts <= 32 * kLogits) load_logits(logits, args, token);
  if (multiplies) {
    load_first_units(values, args);
    clear_outputs(args);
  }
  // Each warp looks for itself: the barrier has not been passed yet, so that bit 31 is still.
  const uint32_t before = args.grid->barrier;
  const uint32_t turn = before >> 31;
  Count* counts = args.grid->counts[turn];
  if (ptx::cta_index().x == 0 && ptx::thread_index() == 0) args.grid->claims = 0;
  route_tokens(logits, args, ListRoutes{args.routes, counts, args.m, args.topk});
  if (multiplies) {
    quantize_in_batches<kUnitsAtOnce>(values, args);
    clear_counts(args.grid->counts[turn ^ 1]);
  }
  ptx::bar_sync(kRouteBarrier, kThreads);
  if (ptx::thread_index() == 0) grid_barrier(&args.grid->barrier, before);
  ptx::bar_sync(kGridBarrier, kRouteThreads);
  return counts;
}

}  // namespace kb::step::sorted
