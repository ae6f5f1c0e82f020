// The items that CTAs have in any case: of the first `covered` experts the first pieces, whose
// weights can be requested before any token is routed. `args` has n and k; `args.cut` says how
// pieces are cut: coarse, covered.
#pragma once

#include "cta_roles.cuh"
#include "item_parts.cuh"
#include "ptx/warp.cuh"
#include "resident_items.cuh"

namespace kb {

template <typename Arguments>
KB_DEVICE uint32_t first_items(const Arguments& args) {
  return args.cut.covered * args.cut.coarse.all;
}

template <typename Arguments>
KB_DEVICE bool has_first_item(const Arguments& args) {
  return ptx::cta_index().x < first_items(args);
}

// The `part`-th item of an expert's piece of up to kTokens tokens.
template <uint32_t kTokens, typename Arguments>
KB_DEVICE Item item_of(const Arguments& args, const Parts& parts, uint32_t expert, uint32_t piece,
                       uint32_t part) {
  const uint32_t n_block = part % parts.along_n * parts.item_n;
  const uint32_t k_block = part / parts.along_n * parts.item_k;
  const uint32_t n_left = args.n / kTileN - n_block;
  const uint32_t k_left = args.k / kTileK - k_block;
  return {.expert = expert,
          .first = piece * kTokens,
          .n_block = n_block,
          .n_blocks = n_left < parts.item_n ? n_left : parts.item_n,
          .k_block = k_block,
          .k_blocks = k_left < parts.item_k ? k_left : parts.item_k};
}

template <uint32_t kTokens, typename Arguments>
KB_DEVICE Item first_item(const Arguments& args) {
  const uint32_t cta = ptx::cta_index().x;
  return item_of<kTokens>(args, args.cut.coarse, cta / args.cut.coarse.all, 0,
                          cta % args.cut.coarse.all);
}

}  // namespace kb
