// Where an expert has many tokens: a CTA's tokens are routed to the lists of their experts.
#pragma once

#include "route_tokens.cuh"
#include "sorted_layout.cuh"

namespace kb::step::sorted {

// Adds a token to the lists of its experts.
struct ListRoutes {
  static constexpr uint32_t kWarps = kRouteThreads / 32;
  Route* routes;  // [experts, m]
  Count* counts;
  uint32_t m, topk;

  KB_DEVICE void operator()(uint32_t /*lane*/, uint32_t token, uint32_t id, float part,
                            float sum) const {
    const float weight = part / sum;
    if (ptx::lane_index() >= topk) return;
    const uint32_t place = ptx::atom_relaxed_gpu_global_add_u32(&counts[id].routes, 1);
    routes[uint64_t{id} * m + place] = {token, weight};
  }
};

}  // namespace kb::step::sorted
