// Where an expert has many tokens: a CTA's tokens are routed to the lists of their experts.
#pragma once

#include "route_tokens.cuh"
#include "sorted_layout.cuh"

namespace kb::step::sorted {

// A route whose place in its expert's list is on its way.
struct Pending {
  Route* list = nullptr;  // null: there is none
  uint32_t place;
  Route route;

  KB_DEVICE void write() {
    if (list != nullptr) list[place] = route;
    list = nullptr;
  }
};

// Adds a token to the lists of its experts. The route is written with the next token's, or at the
// end: a place takes about as long to come as the choice of experts.
struct ListRoutes {
  Route* routes;  // [experts, m]
  Count* counts;
  uint32_t m, topk;
  Pending& pending;

  KB_DEVICE void operator()(uint32_t /*lane*/, uint32_t token, uint32_t id, float part,
                            float sum) const {
    const float weight = part / sum;
    pending.write();
    if (ptx::lane_index() >= topk) return;
    const uint32_t place = ptx::atom_relaxed_gpu_global_add_u32(&counts[id].routes, 1);
    pending = {routes + uint64_t{id} * m, place, {token, weight}};
  }
};

// As route_among_many: a reference to `pending` would put it in memory.
KB_DEVICE_APART void list_among_many(const Arguments& args, Count* counts, uint32_t token) {
  float logits[kMaxExperts / 32];
  load_logits(logits, args, token);
  Pending pending;
  choose_experts(logits, args, ListRoutes{args.routes, counts, args.m, args.topk, pending}, token);
  pending.write();
}

// The CTA's tokens that a warp routes, by their index in the CTA: first, first + stride, ...
struct Turns {
  uint32_t first, stride, end;
};

KB_DEVICE uint32_t token_at(uint32_t index) {
  return ptx::cta_index().x + index * ptx::cta_count().x;
}

// The first token's logits are loaded before, if the experts are few.
KB_DEVICE void list_tokens(float (&logits)[kLogits], const Arguments& args, Count* counts,
                           const Turns& turns, Pending& pending) {
  const ListRoutes keep{args.routes, counts, args.m, args.topk, pending};
#pragma unroll 1
  for (uint32_t i = turns.first; i < turns.end; i += turns.stride) {
    if (args.experts > 32 * kLogits) [[unlikely]] {
      list_among_many(args, counts, token_at(i));
      continue;
    }
    choose_experts(logits, args, keep, token_at(i));
    if (i + turns.stride < turns.end) load_logits(logits, args, token_at(i + turns.stride));
  }
}

}  // namespace kb::step::sorted
