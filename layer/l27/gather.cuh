// The warps that gather find an item's routes and bring its tokens' codes and scales, or their h's,
// to the slots: block by block, as slots are let go.
#pragma once

#include "items.cuh"
#include "pipeline.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/fence.cuh"
#include "tokens.cuh"
#include "wait.cuh"

namespace kb::step {

// Columns of the instruction that take `rows` tokens.
template <uint32_t kTokens>
KB_DEVICE uint32_t columns_for(uint32_t rows) {
  if (kMany<kTokens>) return ceil_div(rows, 16) * 16;
  if (rows <= 32) return ceil_div(rows, 8) * 8;
  if (kTokens == 40) return 40;
  if (rows <= 64) return rows <= 48 ? 48 : 64;
  return 80;
}

// Whether an item's blocks of tokens stay in their slots; else they come anew for each pass.
template <Cut kCut, uint32_t kTokens>
KB_DEVICE bool stays(uint32_t blocks) {
  return kCut != Cut::kWide && blocks <= kSlots<kTokens>;
}

// What of a row comes to the slots: of token or route `r` the codes from r * pitch on, and a scale
// for each block.
struct Source {
  const e4m3* codes;
  const SectorScale* scales;
  uint32_t blocks;
};

// Which blocks a pass brings; of a wide model with the scales of its two matrices.
struct Pass {
  uint32_t first, count;
  const float* scales;
  uint64_t second;  // floats from the first matrix's to the second's
};
template <Cut kCut>
KB_DEVICE Pass pass_of(const Arguments& args, const Item& item, uint32_t pass) {
  const uint64_t matrix = uint64_t{args.slices} * args.blocks;  // scales of gate, of up, of down
  if (item.outputs) {
    const OutputPart part = output_part<kCut>(args, item);
    const uint64_t block = part.block + pass;
    return {part.first, part.count, args.w2_scales + item.expert * matrix + block * args.slices, 0};
  }
  return {0, args.blocks,
          args.w13_scales + 2 * item.expert * matrix + uint64_t{item.part} * args.blocks, matrix};
}
template <Cut kCut, uint32_t kTokens>
KB_DEVICE void copy_wide_scales(SharedStorage<kTokens>& shared, const Pass& pass, uint32_t at,
                                uint32_t block, uint32_t thread) {
  if (kCut != Cut::kWide || thread >= 2) return;
  ptx::cp_async_ca_shared_global_4(&shared.wide_scales[at][thread],
                                   pass.scales + thread * pass.second + block, sizeof(float));
}

// Starts to copy the item's blocks. Rows without a token become zero.
template <Cut kCut, uint32_t kTokens>
KB_DEVICE void gather_codes(SharedStorage<kTokens>& shared, PipelineState<kSlots<kTokens>>& slot,
                            const Source& source, const Pass& pass,
                            const uint32_t (&routes)[kTokens], uint32_t per_row, uint32_t rows) {
  constexpr uint32_t kCopyRows = kGatherThreads / kRowChunks;
  constexpr uint32_t kCopies = (kTokens + kCopyRows - 1) / kCopyRows;
  const uint32_t thread = ptx::thread_index() - 32 * kGatherWarp;
  const uint32_t columns = columns_for<kTokens>(rows);
  const uint32_t chunk = thread % kRowChunks;
  const e4m3* codes[kCopies];
#pragma unroll
  for (uint32_t i = 0; i < kCopies; ++i) {
    const uint32_t row = i * kCopyRows + thread / kRowChunks;
    const uint64_t from = row < rows ? routes[row] / per_row : 0;
    codes[i] = source.codes + from * source.blocks * kBlock + chunk * kChunkBytes;
  }
  const uint64_t own = thread < rows ? routes[thread] / per_row : 0;
  const SectorScale* scale = source.scales + own * source.blocks;
  for (uint32_t block = pass.first; block < pass.first + pass.count; ++block) {
    const uint32_t at = slot.stage;
    mbarrier_wait_parity(&shared.slot_empty[at], slot.phase ^ 1);
#pragma unroll
    for (uint32_t i = 0; i < kCopies; ++i) {
      const uint32_t row = i * kCopyRows + thread / kRowChunks;
      if (row < columns) {
        ptx::cp_async_cg_shared_global_16(shared.codes[at] + swizzle_128b(row, chunk),
                                          codes[i] + block * kBlock, row < rows ? kChunkBytes : 0);
      }
    }
    if (thread < columns) {
      ptx::cp_async_ca_shared_global_4(&shared.scales[at][thread], scale[block].copies,
                                       thread < rows ? sizeof(float) : 0);
    }
    copy_wide_scales<kCut>(shared, pass, at, block, thread);
    ptx::cp_async_mbarrier_arrive_noinc(&shared.slot_full[at]);
    slot.advance();
  }
}

// The same of many tokens: a thread has a row's scale or two. Scales are `pitch` floats apart.
template <Cut kCut, uint32_t kTokens>
KB_DEVICE void gather_many(SharedStorage<kTokens>& shared, PipelineState<kSlots<kTokens>>& slot,
                           const e4m3* codes, const float* scales, uint32_t pitch, uint32_t blocks,
                           const Pass& pass, const uint32_t (&routes)[kTokens], uint32_t per_row,
                           uint32_t rows) {
  constexpr uint32_t kCopyRows = kGatherThreads / kRowChunks;
  constexpr uint32_t kCopies = ceil_div(kTokens, kCopyRows);
  constexpr uint32_t kScales = ceil_div(kTokens, kGatherThreads);
  const uint32_t thread = ptx::thread_index() - 32 * kGatherWarp;
  const uint32_t columns = columns_for<kTokens>(rows);
  const uint32_t chunk = thread % kRowChunks;
  const auto source_of = [&](uint32_t row) { return row < rows ? routes[row] / per_row : 0; };
  uint32_t code_at[kCopies];  // offsets: registers are few
#pragma unroll
  for (uint32_t i = 0; i < kCopies; ++i) {
    const uint32_t row = i * kCopyRows + thread / kRowChunks;
    code_at[i] = source_of(row) * blocks * kBlock + chunk * kChunkBytes;
  }
  uint32_t scale_at[kScales];
#pragma unroll
  for (uint32_t i = 0; i < kScales; ++i) {
    scale_at[i] = source_of(i * kGatherThreads + thread) * blocks * pitch;
  }
  // Registers are few: what is known when compiled, or of one thread, takes none or one.
  const uint32_t begin = kCut == Cut::kWide ? pass.first : 0;
  const uint32_t end = kCut == Cut::kWide ? pass.first + pass.count : blocks;
  const float* wide = pass.scales + thread % 2 * pass.second;
  for (uint32_t block = begin; block < end; ++block) {
    const uint32_t at = slot.stage;
    mbarrier_wait_parity(&shared.slot_empty[at], slot.phase ^ 1);
#pragma unroll
    for (uint32_t i = 0; i < kCopies; ++i) {
      const uint32_t row = i * kCopyRows + thread / kRowChunks;
      if (row >= columns) continue;
      ptx::cp_async_cg_shared_global_16(shared.codes[at] + swizzle_128b(row, chunk),
                                        codes + (code_at[i] + block * kBlock),
                                        row < rows ? kChunkBytes : 0);
    }
#pragma unroll
    for (uint32_t i = 0; i < kScales; ++i) {
      const uint32_t row = i * kGatherThreads + thread;
      if (row >= columns) continue;
      ptx::cp_async_ca_shared_global_4(&shared.scales[at][row],
                                       scales + (scale_at[i] + block * pitch),
                                       row < rows ? sizeof(float) : 0);
    }
    if (kCut == Cut::kWide && thread < 2) {
      ptx::cp_async_ca_shared_global_4(&shared.wide_scales[at][thread], wide + block,
                                       sizeof(float));
    }
    ptx::cp_async_mbarrier_arrive_noinc(&shared.slot_full[at]);
    slot.advance();
  }
}

// Quantizes the item's h, a warp a block; rows without a token become zero.
template <uint32_t kTokens>
KB_DEVICE void quantize_h(SharedStorage<kTokens>& shared, const Arguments& args,
                          PipelineState<kSlots<kTokens>>& slot, const uint32_t (&routes)[kTokens],
                          uint32_t rows) {
  constexpr uint32_t kAhead = 4;  // blocks on their way at a time
  const uint32_t lane = ptx::lane_index();
  const uint32_t warp = ptx::warp_index() - kGatherWarp;
  const uint32_t first_slot = slot.stage;
  for (uint32_t slice = 0; slice < args.slices; ++slice) {
    mbarrier_wait_parity(&shared.slot_empty[slot.stage], slot.phase ^ 1);
    slot.advance();
  }
  const uint32_t units = rows * args.slices;
  for (uint32_t first = warp; first < units; first += kAhead * kGatherWarps) {
    Floats h[kAhead];
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t unit = first + i * kGatherWarps;
      h[i] = {};
      if (unit < units) {
        const uint64_t block =
            uint64_t{routes[unit / args.slices]} * args.slices + unit % args.slices;
        h[i] = reinterpret_cast<const Floats*>(args.h)[block * (kBlock / 4) + lane];
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t unit = first + i * kGatherWarps;
      if (unit >= units) break;
      const uint32_t row = unit / args.slices;
      const uint32_t at = (first_slot + unit % args.slices) % kSlots<kTokens>;
      uint32_t amax = 0;
#pragma unroll
      for (uint32_t v = 0; v < 4; ++v) amax = larger(amax, magnitude(h[i].values[v]));
      const float scale = fp8_scale(__builtin_bit_cast(float, ptx::redux_sync_max(amax)));
      uint8_t* codes = shared.codes[at] + swizzle_128b(row, lane / 4) + lane % 4 * 4;
      *reinterpret_cast<uint32_t*>(codes) = codes_of(h[i].values, scale);
      if (lane == 0) shared.scales[at][row] = scale;
    }
  }
  const uint32_t missing = (columns_for<kTokens>(rows) - rows) * args.slices;
  for (uint32_t unit = warp; unit < missing; unit += kGatherWarps) {
    const uint32_t row = rows + unit / args.slices;
    const uint32_t at = (first_slot + unit % args.slices) % kSlots<kTokens>;
    reinterpret_cast<uint32_t*>(shared.codes[at] + row * kBlock)[lane] = 0;
    if (lane == 0) shared.scales[at][row] = 0;
  }
  ptx::fence_proxy_async(ptx::space_shared_cta);
  for (uint32_t slice = 0; slice < args.slices; ++slice) {
    const uint32_t at = (first_slot + slice) % kSlots<kTokens>;
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.slot_full[at]);
  }
}

// Starts to copy the routes' weights and, but of a wide model, the matrices' scales.
template <Cut kCut, uint32_t kTokens>
KB_DEVICE void copy_scales(const Arguments& args, ItemTokens<kTokens>& to, const Item& item,
                           uint32_t rows, uint32_t thread) {
#pragma unroll
  for (uint32_t i = 0; i < ceil_div(kTokens, kGatherThreads); ++i) {
    const uint32_t row = i * kGatherThreads + thread;
    if (row >= kTokens) break;
    const uint32_t route = row < rows ? to.routes[row] : 0;
    ptx::cp_async_ca_shared_global_4(&to.weights[row], args.expert_weights + route,
                                     row < rows ? sizeof(float) : 0);
    to.outputs[row] = route / args.topk * args.blocks * kBlock;
  }
  if (kCut == Cut::kWide) return;
  const uint32_t matrix = args.slices * args.blocks;  // scales of gate, of up, of down
  const float* from;
  uint32_t count;
  if (item.outputs) {
    from = args.w2_scales + uint64_t{item.expert} * matrix + item.part * args.slices;
    count = args.slices;
  } else {
    const uint32_t slice = item.part * kItemColumns<kCut> / kBlock;
    from = args.w13_scales + 2 * uint64_t{item.expert} * matrix + slice * args.blocks;
    count = args.blocks;
  }
  const uint32_t block = thread % kMaxBlocks;
  const uint32_t rows_of_scales = item.outputs ? item.count : 2 * item.count;
  for (uint32_t row = thread / kMaxBlocks; row < rows_of_scales && block < count;
       row += kGatherThreads / kMaxBlocks) {
    const uint32_t at = item.outputs ? row * args.slices : row % 2 * matrix + row / 2 * args.blocks;
    ptx::cp_async_ca_shared_global_4(&to.matrix_scales[row][block], from + at + block);
  }
}

// The next item that the load warp has claimed; false after the last.
template <Cut kCut, uint32_t kTokens>
KB_DEVICE bool next_item(SharedStorage<kTokens>& shared, const Arguments& args,
                         PipelineState<kQueue>& queued, Item& item) {
  mbarrier_wait_parity(&shared.place_full[queued.stage], queued.phase);
  const uint32_t place = shared.places[queued.stage];
  ptx::bar_warp_sync();
  if (ptx::lane_index() == 0) {
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.place_empty[queued.stage]);
  }
  queued.advance();
  return listed_item<kCut>(shared, args, place, item);
}

// `before`: the meeting's barrier when the kernel started.
template <Cut kCut, uint32_t kTokens>
KB_DEVICE void gather_items(SharedStorage<kTokens>& shared, const Arguments& args,
                            uint32_t before) {
  static_assert(2 * kMaxBlocks <= kGatherThreads);
  const uint32_t thread = ptx::thread_index() - 32 * kGatherWarp;
  PipelineState<kQueue> queued;
  PipelineState<2> turn;
  PipelineState<kSlots<kTokens>> slot;
  bool some = true;
  for (bool first = true; some; first = false, turn.advance()) {
    ItemTokens<kTokens>& to = shared.items[turn.stage];
    Item item;
    some = next_item<kCut>(shared, args, queued, item);
    const uint32_t rows = some ? rows_of(shared, item) : 0;
    mbarrier_wait_parity(&shared.item_empty[turn.stage], turn.phase ^ 1);
    if (thread == 0) {
      to.item = item;
      to.rows = rows;
    }
    if (some) {
      if constexpr (!kLists<kTokens>) {
        select_routes(shared, args, item, to.routes, thread / 32, kGatherWarps, kGatherBarrier);
        copy_scales<kCut>(args, to, item, rows, thread);
      }
      // Tokens are quantized when all CTAs have met, and outputs zero; h when its items are done.
      if (thread == 0) {
        if (first) global_wait_changed(&args.meeting->barrier, before, 1u << 31);
        if (item.outputs) {
          global_wait_at_least(&args.meeting->done[before >> 31][item.piece],
                               column_items<kCut>(args));
        }
      }
      ptx::bar_sync(kGatherBarrier, kGatherThreads);
      if constexpr (kLists<kTokens>) {
        for (uint32_t row = thread; row < rows; row += kGatherThreads) {
          to.routes[row] = args.lists[item.piece * kTokens + row];
        }
        ptx::bar_sync(kGatherBarrier, kGatherThreads);
        copy_scales<kCut>(args, to, item, rows, thread);
      }
    }
    ptx::cp_async_mbarrier_arrive_noinc(&shared.item_full[turn.stage]);
    if (thread == 0) {
      ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.item_full[turn.stage]);
    }
    if (!some) return;
    const bool few = stays<kCut, kTokens>(item.outputs ? args.slices : args.blocks);
    if constexpr (kMany<kTokens>) {  // one block of columns, whose halves are multiplied together
      const uint32_t passes = few || !item.outputs ? 1 : item.count;
      for (uint32_t pass = 0; pass < passes; ++pass) {
        const Pass of = pass_of<kCut>(args, item, pass);
        if (!item.outputs) {
          gather_many<kCut>(shared, slot, args.codes, args.scales->copies, 1, args.blocks, of,
                            to.routes, args.topk, rows);
        } else {
          gather_many<kCut>(shared, slot, args.h_codes, args.h_scales->copies, kSectorScales,
                            args.slices, of, to.routes, 1, rows);
        }
      }
      continue;
    }
    const uint32_t passes = few ? 1 : item.outputs ? item.count : 2 * item.count;
    for (uint32_t pass = 0; pass < passes; ++pass) {
      const Pass of = pass_of<kCut>(args, item, pass);
      if (!item.outputs) {
        gather_codes<kCut>(shared, slot, {args.codes, args.scales, args.blocks}, of, to.routes,
                           args.topk, rows);
      } else if constexpr (kCut == Cut::kFine) {
        quantize_h(shared, args, slot, to.routes, rows);
      } else {
        gather_codes<kCut>(shared, slot, {args.h_codes, args.h_scales, args.slices}, of, to.routes,
                           1, rows);
      }
    }
  }
}

}  // namespace kb::step
