// Tokens: the warps that gather find an item's routes, quantize its tokens to shared memory, and
// copy its scales and weights there. For a CTA's first item all warps but the load warp do so.
#pragma once

#include "items.cuh"
#include "pipeline.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/fence.cuh"
#include "quantize.cuh"
#include "wait.cuh"

namespace kb::step {

// Columns of the instruction that take `rows` tokens.
KB_DEVICE uint32_t columns_for(uint32_t rows) {
  return rows <= 32 ? ceil_div(rows, 8) * 8 : 48;
}

struct alignas(16) Vector {
  uint32_t words[4];
};
struct alignas(8) Codes {
  uint32_t words[2];
};

// Quantizes two blocks of a token, each by 16 lanes, and writes their codes and scales.
template <uint32_t kTokens>
KB_DEVICE void quantize_unit(SharedStorage<kTokens>& shared, ItemTokens<kTokens>& to,
                             const Vector& vector, uint32_t buffer, uint32_t row, uint32_t block,
                             bool exists) {
  float values[8];
  uint32_t amax = 0;
#pragma unroll
  for (uint32_t i = 0; i < 8; ++i) {
    values[i] = __builtin_bit_cast(
        float, i % 2 == 0 ? vector.words[i / 2] << 16 : vector.words[i / 2] & 0xffff0000u);
    amax = larger(amax, magnitude(values[i]));
  }
#pragma unroll
  for (uint32_t mask = 8; mask != 0; mask /= 2)
    amax = larger(amax, ptx::shfl_sync_bfly(amax, mask));
  const float scale = fp8_scale(__builtin_bit_cast(float, amax));
  if (!exists) return;
  const uint32_t lane = ptx::lane_index() % 16;
  const float lo[4] = {values[0], values[1], values[2], values[3]};
  const float hi[4] = {values[4], values[5], values[6], values[7]};
  uint8_t* at =
      shared.codes[buffer][block] + swizzle_128b(row, lane / 2) + lane % 2 * sizeof(Codes);
  *reinterpret_cast<Codes*>(at) = {codes_of(lo, scale), codes_of(hi, scale)};
  if (lane == 0) to.scales[block][row] = scale;
}

// The item's tokens, by `warps` warps of which the caller's is number `warp`. Rows without a token
// become zero.
template <uint32_t kTokens>
KB_DEVICE void gather_tokens(SharedStorage<kTokens>& shared, const Arguments& args,
                             ItemTokens<kTokens>& to, uint32_t rows, uint32_t buffer, uint32_t warp,
                             uint32_t warps) {
  constexpr uint32_t kAhead = 4;  // units on their way at a time
  const uint32_t pairs = ceil_div(args.blocks, 2);
  const uint32_t half = ptx::lane_index() / 16;
  const uint32_t lane = ptx::lane_index() % 16;
  const uint32_t units = rows * pairs;
  for (uint32_t first = warp; first < units; first += kAhead * warps) {
    Vector vectors[kAhead];
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t unit = first + i * warps;
      const uint32_t block = unit % pairs * 2 + half;
      vectors[i] = {};
      if (unit < units && block < args.blocks) {
        const uint32_t token = to.routes[unit / pairs] / args.topk;
        const bf16* row = args.hidden + uint64_t{token} * args.blocks * kBlock;
        vectors[i] = *reinterpret_cast<const Vector*>(row + block * kBlock + lane * 8);
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t unit = first + i * warps;
      if (unit >= units) break;
      const uint32_t block = unit % pairs * 2 + half;
      quantize_unit(shared, to, vectors[i], buffer, unit / pairs, block, block < args.blocks);
    }
  }
  const uint32_t missing = (columns_for(rows) - rows) * args.blocks;
  for (uint32_t unit = 2 * warp + half; unit < missing; unit += 2 * warps) {
    const uint32_t row = rows + unit / args.blocks;
    const uint32_t block = unit % args.blocks;
    uint8_t* at = shared.codes[buffer][block] + row * kBlock + lane * sizeof(Codes);
    *reinterpret_cast<Codes*>(at) = {};
    if (lane == 0) to.scales[block][row] = 0;
  }
}

// Starts to copy the routes' weights and the matrices' scales: by the threads that gather.
template <uint32_t kTokens>
KB_DEVICE void copy_scales(const Arguments& args, ItemTokens<kTokens>& to, const Item& item,
                           uint32_t rows, uint32_t thread) {
  if (thread < rows) {
    ptx::cp_async_ca_shared_global_4(&to.weights[thread], args.expert_weights + to.routes[thread]);
  }
  const uint32_t matrix = args.slices * args.blocks;  // scales of gate, of up, of down
  const float* gate = args.w13_scales + 2 * uint64_t{item.expert} * matrix;
  const float* down = args.w2_scales + uint64_t{item.expert} * matrix;
  for (uint32_t i = thread; i < item.slices * args.blocks; i += kGatherThreads) {
    const uint32_t slice = i / args.blocks;
    const uint32_t block = i % args.blocks;
    const uint32_t from = (item.slice + slice) * args.blocks + block;
    ptx::cp_async_ca_shared_global_4(&to.gate_scales[slice][block], gate + from);
    ptx::cp_async_ca_shared_global_4(&to.up_scales[slice][block], gate + matrix + from);
    ptx::cp_async_ca_shared_global_4(&to.down_scales[block][slice],
                                     down + block * args.slices + item.slice + slice);
  }
}

// The CTA's first item, by all that route; what the warps that gather have started is not waited
// for. They publish it.
template <uint32_t kTokens>
KB_DEVICE void gather_first(SharedStorage<kTokens>& shared, const Arguments& args, uint32_t warp) {
  Item item;
  if (!listed_item(shared, args, ptx::cta_index().x, item)) return;
  ItemTokens<kTokens>& to = shared.items[0];
  const uint32_t rows = rows_of(shared, item);
  select_routes(shared, args, item, to, warp, kRouteWarps, kRouteBarrier);
  if (warp >= kMultiplyWarps) {
    copy_scales(args, to, item, rows, 32 * (warp - kMultiplyWarps) + ptx::lane_index());
  }
  gather_tokens(shared, args, to, rows, 0, warp, kRouteWarps);
  ptx::fence_proxy_async(ptx::space_shared_cta);
  ptx::bar_sync(kRouteBarrier, kRouteThreads);
}

// Says that the item's tokens are complete, by each thread that gathers: its copies and its stores.
template <uint32_t kTokens>
KB_DEVICE void publish(SharedStorage<kTokens>& shared, const PipelineState<2>& turn) {
  ptx::cp_async_mbarrier_arrive_noinc(&shared.item_full[turn.stage]);
  ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.item_full[turn.stage]);
}

// The next item that the load warp has claimed; false after the last.
template <uint32_t kTokens>
KB_DEVICE bool next_item(SharedStorage<kTokens>& shared, const Arguments& args,
                         PipelineState<kQueue>& queued, Item& item) {
  mbarrier_wait_parity(&shared.place_full[queued.stage], queued.phase);
  const uint32_t place = shared.places[queued.stage];
  ptx::bar_warp_sync();
  if (ptx::lane_index() == 0) {
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.place_empty[queued.stage]);
  }
  queued.advance();
  return listed_item(shared, args, place, item);
}

// By the warps that gather, when the first item's tokens are there.
template <uint32_t kTokens>
KB_DEVICE void gather_items(SharedStorage<kTokens>& shared, const Arguments& args) {
  const uint32_t thread = ptx::thread_index() - 32 * kGatherWarp;
  const uint32_t warp = thread / 32;
  PipelineState<kQueue> queued;
  PipelineState<2> turn;
  PipelineState<kBuffers<kTokens>> buffer;
  bool some = true;
  for (bool first = true; some; first = false) {
    ItemTokens<kTokens>& to = shared.items[turn.stage];
    Item item;
    some = next_item(shared, args, queued, item);
    const uint32_t rows = some ? rows_of(shared, item) : 0;
    mbarrier_wait_parity(&shared.item_empty[turn.stage], turn.phase ^ 1);
    if (thread == 0) {
      to.item = item;
      to.rows = rows;
    }
    if (some && !first) {
      select_routes(shared, args, item, to, warp, kGatherWarps, kGatherBarrier);
      copy_scales(args, to, item, rows, thread);
      mbarrier_wait_parity(&shared.codes_empty[buffer.stage], buffer.phase ^ 1);
      gather_tokens(shared, args, to, rows, buffer.stage, warp, kGatherWarps);
      ptx::fence_proxy_async(ptx::space_shared_cta);
    }
    publish(shared, turn);
    turn.advance();
    buffer.advance();
  }
}

}  // namespace kb::step
