// Sets to zero what CTAs add to, by the warps that multiply.
#pragma once

#include "cta_roles.cuh"
#include "ptx/warp.cuh"
#include "token_data.cuh"

namespace kb {

// The outputs of the CTA's tokens c, c + CTAs, ...
template <typename Arguments>
KB_DEVICE void clear_outputs(const Arguments& args) {
  const uint32_t ctas = ptx::cta_count().x;
  const uint32_t vectors = args.n * sizeof(float) / sizeof(Vector);
  for (uint32_t token = ptx::cta_index().x; token < args.m; token += ctas) {
    auto* output = reinterpret_cast<Vector*>(args.output + uint64_t{token} * args.n);
    for (uint32_t i = ptx::thread_index(); i < vectors; i += kMultiplyThreads) output[i] = {};
  }
}

// The routes of all experts, each in a struct of its own.
template <typename Count>
KB_DEVICE void clear_counts(Count* counts) {
  const uint32_t first = ptx::cta_index().x * kMultiplyThreads + ptx::thread_index();
  for (uint32_t e = first; e < kMaxExperts; e += ptx::cta_count().x * kMultiplyThreads) {
    counts[e].routes = 0;
  }
}

}  // namespace kb
