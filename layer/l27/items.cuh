// The list of items, which each CTA makes for itself from the routes' experts: it counts them, and
// cuts each expert's routes into pieces of up to kTokens. First come all pieces' columns of h, then
// their outputs. CTA c has the c-th item; the others are claimed. Which routes a piece has, who
// gathers them looks up among the ids: in ascending order, for every CTA.
#pragma once

#include "layout.cuh"
#include "ptx/red.cuh"
#include "ptx/warp.cuh"

namespace kb::step {

// Items of columns of a piece that are all small.
template <Cut kCut>
KB_DEVICE uint32_t column_items(const Arguments& args) {
  return args.slices * (kBlock / kItemColumns<kCut>);
}

// The expert of a piece: the last one that starts there or before.
template <uint32_t kTokens>
KB_DEVICE uint32_t expert_of(const SharedStorage<kTokens>& shared, const Arguments& args,
                             uint32_t piece) {
  uint32_t expert = 0;
  uint32_t end = args.experts;
  while (end - expert > 1) {
    const uint32_t middle = (expert + end) / 2;
    if (shared.starts[middle] <= piece) {
      expert = middle;
    } else {
      end = middle;
    }
  }
  return expert;
}

// Tokens of a piece of an expert at most.
template <uint32_t kTokens>
KB_DEVICE uint32_t share_of(const SharedStorage<kTokens>& shared, uint32_t expert) {
  if constexpr (kMany<kTokens>) {
    return ceil_div(shared.counts[expert], shared.starts[expert + 1] - shared.starts[expert]);
  } else {
    return kTokens;
  }
}

// Whether all but the last pieces have large items.
template <Cut kCut, uint32_t kTokens>
KB_DEVICE bool has_large(const SharedStorage<kTokens>& shared, const Arguments& args) {
  return kCut == Cut::kLarge && shared.starts[args.experts] >= args.large.many;
}

// The item at a place of the list; false past its end. An expert's items stand by their weights:
// all pieces' first parts, then all pieces' second ones.
template <Cut kCut, uint32_t kTokens>
KB_DEVICE bool listed_item(const SharedStorage<kTokens>& shared, const Arguments& args,
                           uint32_t place, Item& item) {
  const uint32_t pieces = shared.starts[args.experts];
  const uint32_t last = has_large<kCut>(shared, args) ? pieces - args.large.last : 0;
  uint32_t total = column_items<kCut>(args);  // of a piece
  uint32_t size = args.large.columns;         // of an item of a piece before `last`
  uint32_t parts = args.large.column_parts;   // of such a piece
  uint32_t last_size = 1;
  uint32_t last_parts = total;
  const uint32_t columns = last * parts + (pieces - last) * last_parts;
  const bool outputs = place >= columns;
  if (outputs) {
    place -= columns;
    total = kCut == Cut::kWide ? args.blocks * args.wide_parts : args.blocks;
    size = kLargeOutputs;
    parts = ceil_div(total, size);
    last_size = kCut == Cut::kWide ? args.wide_outputs : kItemOutputs<kCut, kTokens>;
    last_parts = ceil_div(total, last_size);
  }
  uint32_t begin = 0;
  uint32_t end = last;
  if (place >= last * parts) {
    place -= last * parts;
    begin = last;
    end = pieces;
    size = last_size;
    parts = last_parts;
  }
  if (place >= (end - begin) * parts) return false;
  const uint32_t expert = expert_of(shared, args, begin + place / parts);
  const uint32_t first = shared.starts[expert];
  const uint32_t start = first > begin ? first : begin;
  const uint32_t next = shared.starts[expert + 1];
  const uint32_t own = (next < end ? next : end) - start;  // pieces of the expert
  const uint32_t at = place - (start - begin) * parts;
  const uint32_t piece = start + at % own;
  const uint32_t part = at / own * size;
  item = {.piece = piece,
          .expert = expert,
          .first = (piece - first) * share_of(shared, expert),
          .part = part,
          .count = total - part < size ? total - part : size,
          .outputs = outputs};
  return true;
}

// Of an item of outputs: its first block of outputs, and the blocks of h that it multiplies.
struct OutputPart {
  uint32_t block, first, count;
};
template <Cut kCut>
KB_DEVICE OutputPart output_part(const Arguments& args, const Item& item) {
  if (kCut != Cut::kWide) return {item.part, 0, args.slices};
  const uint32_t share = ceil_div(args.slices, args.wide_parts);
  const uint32_t first = item.part % args.wide_parts * share;
  const uint32_t left = args.slices - first;
  return {item.part / args.wide_parts, first, left < share ? left : share};
}

template <uint32_t kTokens>
KB_DEVICE uint32_t rows_of(const SharedStorage<kTokens>& shared, const Item& item) {
  const uint32_t left = shared.counts[item.expert] - item.first;
  const uint32_t share = share_of(shared, item.expert);
  return left < share ? left : share;
}

// By the warps that route, thread by thread: the ids to shared memory, counted. The first ids are
// on their way while the counts are set to zero.
template <uint32_t kTokens>
KB_DEVICE void count_routes(SharedStorage<kTokens>& shared, const Arguments& args,
                            uint32_t thread) {
  constexpr uint32_t kAhead = kLists<kTokens> ? 16 : 4;  // ids on their way at a time
  uint16_t* to = ids_of(shared);
  const uint32_t routes = args.m * args.topk;
  const uint32_t padded = ceil_div(routes, 8) * 8;
  int32_t ids[kAhead];
  const auto read_ids = [&](uint32_t first) {
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t route = first + i * kRouteThreads;
      ids[i] = route < routes ? args.ids[route] : -1;
    }
  };
  read_ids(thread);
  for (uint32_t e = thread; e < kMaxExperts; e += kRouteThreads) shared.counts[e] = 0;
  ptx::bar_sync(kRouteBarrier, kRouteThreads);
  for (uint32_t first = thread; first < padded; first += kAhead * kRouteThreads) {
    if (first != thread) read_ids(first);
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t route = first + i * kRouteThreads;
      if (route >= padded) break;
      const bool valid = static_cast<uint32_t>(ids[i]) < args.experts;
      to[route] = static_cast<uint16_t>(valid ? ids[i] : kNoExpert);
      if (valid) ptx::red_relaxed_cta_shared_add_u32(&shared.counts[ids[i]], 1);
    }
  }
}

// By one warp: exclusive sums of the experts' pieces.
template <uint32_t kTokens>
KB_DEVICE void sum_pieces(SharedStorage<kTokens>& shared, const Arguments& args) {
  const uint32_t lane = ptx::lane_index();
  const uint32_t share = ceil_div(args.experts, 32);  // of a lane
  const uint32_t begin = lane * share;
  const uint32_t end = begin + share < args.experts ? begin + share : args.experts;
  uint32_t own = 0;
  for (uint32_t e = begin; e < end; ++e) own += ceil_div(shared.counts[e], kTokens);
  uint32_t sum = own;
#pragma unroll
  for (uint32_t delta = 1; delta < 32; delta *= 2) {
    const uint32_t below = ptx::shfl_sync_up(sum, delta);
    if (lane >= delta) sum += below;
  }
  uint32_t start = sum - own;
  for (uint32_t e = begin; e < end; ++e) {
    shared.starts[e] = start;
    start += ceil_div(shared.counts[e], kTokens);
  }
  if (lane == 31) shared.starts[args.experts] = sum;
}

// Which of eight ids, two in a word, are the expert: bit i, the i-th.
struct alignas(16) EightIds {
  uint32_t words[4];
};
KB_DEVICE uint32_t find_expert(const EightIds& ids, uint32_t expert) {
  uint32_t bits = 0;
#pragma unroll
  for (uint32_t i = 0; i < 8; ++i) {
    bits |= ((ids.words[i / 2] >> 16 * (i % 2) & 0xffff) == expert ? 1u : 0u) << i;
  }
  return bits;
}

// Finds the item's routes. By `warps` warps, of which the caller's is number `warp`; they meet at
// `barrier`, so that all may read what was found on return.
template <uint32_t kTokens>
KB_DEVICE void select_routes(SharedStorage<kTokens>& shared, const Arguments& args,
                             const Item& item, uint32_t (&found)[kTokens], uint32_t warp,
                             uint32_t warps, uint32_t barrier) {
  const uint32_t lane = ptx::lane_index();
  const uint32_t vectors = ceil_div(args.m * args.topk, 8);
  const uint32_t share = ceil_div(vectors, warps);
  const uint32_t begin = warp * share < vectors ? warp * share : vectors;
  const uint32_t end = begin + share < vectors ? begin + share : vectors;
  const auto* ids = reinterpret_cast<const EightIds*>(ids_of(shared));
  uint32_t own = 0;
  for (uint32_t v = begin + lane; v < end; v += 32) {
    own += static_cast<uint32_t>(__builtin_popcount(find_expert(ids[v], item.expert)));
  }
  own = ptx::redux_sync_add(own);
  if (lane == 0) shared.matches[warp] = own;
  ptx::bar_sync(barrier, 32 * warps);
  uint32_t rank = 0;
  for (uint32_t w = 0; w < warp; ++w) rank += shared.matches[w];
  for (uint32_t v = begin + lane; v - lane < end && rank < item.first + kTokens; v += 32) {
    uint32_t bits = v < end ? find_expert(ids[v], item.expert) : 0;
    const auto count = static_cast<uint32_t>(__builtin_popcount(bits));
    uint32_t sum = count;
#pragma unroll
    for (uint32_t delta = 1; delta < 32; delta *= 2) {
      const uint32_t below = ptx::shfl_sync_up(sum, delta);
      if (lane >= delta) sum += below;
    }
    for (uint32_t at = rank + sum - count; bits != 0; bits &= bits - 1, ++at) {
      if (at - item.first < kTokens) {
        const auto bit = static_cast<uint32_t>(__builtin_popcount((bits & (0 - bits)) - 1));
        found[at - item.first] = 8 * v + bit;
      }
    }
    rank += ptx::shfl_sync_idx(sum, 31);
  }
  ptx::bar_sync(barrier, 32 * warps);
}

// By all that route: CTA c looks up the routes of the pieces c, c + CTAs, ...
template <uint32_t kTokens>
KB_DEVICE void list_routes(SharedStorage<kTokens>& shared, const Arguments& args, uint32_t thread) {
  const uint32_t pieces = shared.starts[args.experts];
  uint32_t (&found)[kTokens] = shared.items[0].routes;
  for (uint32_t piece = ptx::cta_index().x; piece < pieces; piece += ptx::cta_count().x) {
    const uint32_t expert = expert_of(shared, args, piece);
    const Item item = {.piece = piece,
                       .expert = expert,
                       .first = (piece - shared.starts[expert]) * share_of(shared, expert),
                       .part = 0,
                       .count = 0,
                       .outputs = false};
    select_routes(shared, args, item, found, thread / 32, kRouteWarps, kRouteBarrier);
    if (thread < rows_of(shared, item)) args.lists[piece * kTokens + thread] = found[thread];
  }
}

}  // namespace kb::step
