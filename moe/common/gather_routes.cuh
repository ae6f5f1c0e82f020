// Tokens of a piece of an expert's list of routes, gathered block by block into the stages that
// bring the weights: by the warps that gather. `args` has routes, codes and scales; shared.items
// hold the piece's `item`, and its rows, tokens and weights.
#pragma once

#include "cta_roles.cuh"
#include "fp8_tile.cuh"
#include "pipeline.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"
#include "resident_items.cuh"
#include "token_data.cuh"
#include "wait.cuh"

namespace kb {

// A token that goes to an expert.
struct alignas(8) Route {
  uint32_t token;
  float weight;  // of the expert in the token's sum
};

// An expert's routes are cut evenly.
struct Span {
  uint32_t first, rows;
};
template <uint32_t kTokens>
KB_DEVICE Span span_of(uint32_t count, uint32_t piece) {
  const uint32_t pieces = ceil_div(count, kTokens);
  if (pieces == 0) return {0, 0};
  const uint32_t rows = ceil_div(ceil_div(count, pieces), 8) * 8;
  const uint32_t first = piece * rows;
  return {first, count - first < rows ? count - first : rows};
}

// Where a token's scale of a block is: in a sector of its own, or in a row.
KB_DEVICE const float* scale_at(const SectorScale* scales, uint64_t i) {
  return scales[i].copies;
}
KB_DEVICE const float* scale_at(const float* scales, uint64_t i) {
  return scales + i;
}

// The codes and scales of the item's tokens, block by block. Of a row without a route the scale
// becomes zero, up to the 16 columns that a product takes; its codes are what they were, and its
// sums go nowhere.
template <uint32_t kTokens, uint32_t kStages, typename Shared, typename Arguments, typename Item>
KB_DEVICE void gather_route_blocks(Shared& shared, const Arguments& args,
                                   PipelineState<kStages>& state, const Item& item, uint32_t rows,
                                   const uint32_t (&tokens)[kTokens]) {
  constexpr uint32_t kCopyRows = kGatherThreads / kRowChunks;
  constexpr uint32_t kCopies = (kTokens + kCopyRows - 1) / kCopyRows;
  const uint32_t thread = ptx::thread_index() - 32 * kGatherWarp;
  const uint32_t row = thread / kRowChunks;
  const uint32_t chunk = thread % kRowChunks;
  uint32_t from[kCopies];  // rows of codes
#pragma unroll
  for (uint32_t i = 0; i < kCopies; ++i) {
    from[i] = row + i * kCopyRows < rows ? tokens[row + i * kCopyRows] : 0;
  }
  const uint32_t blocks = args.k / kTileK;
  const e4m3* codes = args.codes + item.k_block * kTileK + chunk * kChunkBytes;
  for (uint32_t block = 0; block < item.k_blocks; ++block, codes += kTileK) {
    const uint32_t at = state.stage;
    mbarrier_wait_parity(&shared.empty[at], state.phase ^ 1);
#pragma unroll
    for (uint32_t i = 0; i < kCopies; ++i) {
      if (row + i * kCopyRows < rows) {
        ptx::cp_async_cg_shared_global_16(
            shared.codes[at] + swizzle_128b(row + i * kCopyRows, chunk),
            codes + uint64_t{from[i]} * args.k);
      }
    }
    for (uint32_t r = thread; r < ceil_div(rows, 16) * 16; r += kGatherThreads) {
      const uint32_t token = r < rows ? tokens[r] : 0;
      const float* scale = scale_at(args.scales, uint64_t{token} * blocks + item.k_block + block);
      ptx::cp_async_ca_shared_global_4(&shared.scales[at][r / 2].even + r % 2, scale,
                                       r < rows ? sizeof(float) : 0);
    }
    ptx::cp_async_mbarrier_arrive_noinc(&shared.codes_full[at]);
    state.advance();
  }
}

// Fills the next of shared.items, and stages with the item's tokens. `count`: the expert's routes.
template <template <uint32_t> typename Shared, uint32_t kTokens, uint32_t kStages,
          typename Arguments, typename Item>
KB_DEVICE void gather_routes(Shared<kTokens>& shared, const Arguments& args, PipelineState<2>& turn,
                             PipelineState<kStages>& state, const Item& item, uint32_t count) {
  const uint32_t thread = ptx::thread_index() - 32 * kGatherWarp;
  auto& to = shared.items[turn.stage];
  const Span span = span_of<kTokens>(count, item.piece);
  const Route* routes = args.routes + uint64_t{item.expert} * args.m + span.first;
  mbarrier_wait_parity(&shared.item_empty[turn.stage], turn.phase ^ 1);
  for (uint32_t r = thread; r < span.rows; r += kGatherThreads) {
    const Route route = routes[r];
    to.tokens[r] = route.token;
    to.weights[r] = route.weight;
  }
  if (thread == 0) {
    to.item = item;
    to.rows = span.rows;
    // Of no routes the stages that were requested before, and are of no use.
    if (span.rows == 0) to.item.k_blocks = item.k_blocks < kStages ? item.k_blocks : kStages;
  }
  ptx::bar_sync(kGatherBarrier, kGatherThreads);
  if (thread == 0) {
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.item_full[turn.stage]);
  }
  gather_route_blocks(shared, args, state, to.item, span.rows, to.tokens);
  turn.advance();
}

// After the last item.
template <typename Shared>
KB_DEVICE void gather_no_more_routes(Shared& shared, const PipelineState<2>& turn) {
  mbarrier_wait_parity(&shared.item_empty[turn.stage], turn.phase ^ 1);
  if (ptx::thread_index() == 32 * kGatherWarp) {
    shared.items[turn.stage].rows = kNoItem;
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.item_full[turn.stage]);
  }
}

}  // namespace kb
