// Tensor memory and block-scaled products, in one CTA and in a pair.
#include "descriptors.cuh"
#include "parity.cuh"
#include "ptx/cluster.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tcgen05.cuh"
#include "ptx/warp.cuh"
#include "wait.cuh"

using ptx::cta_group_1;
using ptx::cta_group_2;
using ptx::scope_cluster;
using ptx::sem_acquire;
using ptx::sem_release;

inline constexpr uint32_t kThreads = 128;

KB_DEVICE uint32_t warp_lanes() {
  return ptx::warp_index() * 32 << 16;
}

// Between tensor memory operations of different warps.
KB_DEVICE void tensor_barrier() {
  ptx::tcgen05_fence_before_thread_sync();
  ptx::bar_sync();
  ptx::tcgen05_fence_after_thread_sync();
}

// ---- Every shape and count of a load, over columns that the threads have stored

struct Memory {
  uint32_t tmem;
};

template <int kCount>
KB_DEVICE uint32_t* keep(const uint32_t (&values)[kCount], uint32_t* out) {
  for (int r = 0; r < kCount; ++r) out[ptx::thread_index() * kCount + r] = values[r];
  return out + kThreads * kCount;
}

template <int kCount>
KB_DEVICE uint32_t* load_32x32b(uint32_t tmem, uint32_t* out) {
  uint32_t values[kCount];
  ptx::tcgen05_ld_32x32b(values, tmem + warp_lanes() + 7);
  ptx::tcgen05_wait_ld(values);
  return keep(values, out);
}
template <int kCount>
KB_DEVICE uint32_t* load_16x64b(uint32_t tmem, uint32_t* out) {
  uint32_t values[kCount];
  for (uint32_t half = 0; half < 2; ++half) {
    ptx::tcgen05_ld_16x64b(values, tmem + warp_lanes() + (16 * half << 16) + 32 * half);
    ptx::tcgen05_wait_ld(values);
    out = keep(values, out);
  }
  return out;
}
template <int kCount>
KB_DEVICE uint32_t* load_16x256b(uint32_t tmem, uint32_t* out) {
  uint32_t values[kCount];
  for (uint32_t half = 0; half < 2; ++half) {
    ptx::tcgen05_ld_16x256b(values, tmem + warp_lanes() + (16 * half << 16) + 64 * half);
    ptx::tcgen05_wait_ld(values);
    out = keep(values, out);
  }
  return out;
}

template <int kCount>
KB_DEVICE void store_32x32b(uint32_t tmem, uint32_t column, const uint32_t* row) {
  uint32_t values[kCount];
  for (int r = 0; r < kCount; ++r) values[r] = row[column + r];
  ptx::tcgen05_st_32x32b(tmem + warp_lanes() + column, values);
}

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) tensor_memory(const uint32_t* in, uint32_t* out) {
  Memory& shared = shared_storage<Memory>();
  if (ptx::warp_index() == 2) {
    ptx::tcgen05_alloc(cta_group_1, &shared.tmem, 512);
    ptx::tcgen05_relinquish_alloc_permit(cta_group_1);
  }
  tensor_barrier();
  const uint32_t tmem = shared.tmem;

  const uint32_t* row = in + 512 * ptx::thread_index();
  store_32x32b<128>(tmem, 0, row);
  store_32x32b<128>(tmem, 128, row);
  store_32x32b<64>(tmem, 256, row);
  store_32x32b<32>(tmem, 320, row);
  store_32x32b<16>(tmem, 352, row);
  store_32x32b<8>(tmem, 368, row);
  store_32x32b<4>(tmem, 376, row);
  store_32x32b<2>(tmem, 380, row);
  store_32x32b<1>(tmem, 382, row);
  store_32x32b<1>(tmem, 383, row);
  store_32x32b<128>(tmem, 384, row);
  ptx::tcgen05_wait_st();
  tensor_barrier();

  out = load_32x32b<1>(tmem, out);
  out = load_32x32b<2>(tmem, out);
  out = load_32x32b<4>(tmem, out);
  out = load_32x32b<8>(tmem, out);
  out = load_32x32b<16>(tmem, out);
  out = load_32x32b<32>(tmem, out);
  out = load_32x32b<64>(tmem, out);
  out = load_32x32b<128>(tmem, out);
  out = load_16x64b<1>(tmem, out);
  out = load_16x64b<2>(tmem, out);
  out = load_16x64b<4>(tmem, out);
  out = load_16x64b<8>(tmem, out);
  out = load_16x64b<16>(tmem, out);
  out = load_16x64b<32>(tmem, out);
  out = load_16x64b<64>(tmem, out);
  out = load_16x64b<128>(tmem, out);
  out = load_16x256b<4>(tmem, out);
  out = load_16x256b<8>(tmem, out);
  out = load_16x256b<16>(tmem, out);
  out = load_16x256b<32>(tmem, out);
  out = load_16x256b<64>(tmem, out);
  load_16x256b<128>(tmem, out);
  tensor_barrier();
  if (ptx::warp_index() == 1) ptx::tcgen05_dealloc(cta_group_1, tmem, 512);
}
PARITY_CASE(tensor_memory) {
  rt::launch(tensor_memory,
             {.grid = {2, 1, 1}, .threads = kThreads, .shared_bytes = sizeof(Memory)}, test.in,
             test.out);
}

// ---- Allocations of several sizes hold what is stored in them, also after others are freed

struct Places {
  uint32_t tmem[5];
};

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) allocations(const uint32_t* in, uint32_t* out) {
  Places& shared = shared_storage<Places>();
  const uint32_t thread = ptx::thread_index();
  const uint32_t sizes[4] = {128, 64, 64, 32};
  const auto put = [&](uint32_t place) {
    const uint32_t value[1] = {in[place * kThreads + thread]};
    ptx::tcgen05_st_32x32b(shared.tmem[place] + warp_lanes() + 5, value);
    ptx::tcgen05_wait_st();
  };
  if (ptx::warp_index() == 0) {
    for (int i = 0; i < 4; ++i) ptx::tcgen05_alloc(cta_group_1, &shared.tmem[i], sizes[i]);
  }
  tensor_barrier();
  for (uint32_t i = 0; i < 4; ++i) put(i);
  tensor_barrier();
  if (ptx::warp_index() == 0) {
    ptx::tcgen05_dealloc(cta_group_1, shared.tmem[1], 64);
    ptx::tcgen05_alloc(cta_group_1, &shared.tmem[4], 32);
    ptx::tcgen05_relinquish_alloc_permit(cta_group_1);
  }
  tensor_barrier();
  put(4);
  tensor_barrier();
  for (uint32_t i = 0; i < 5; ++i) {
    if (i == 1) continue;
    uint32_t value[1];
    ptx::tcgen05_ld_32x32b(value, shared.tmem[i] + warp_lanes() + 5);
    ptx::tcgen05_wait_ld(value);
    out[i * kThreads + thread] = value[0];
  }
  tensor_barrier();
  if (ptx::warp_index() == 0) {
    ptx::tcgen05_dealloc(cta_group_1, shared.tmem[0], 128);
    ptx::tcgen05_dealloc(cta_group_1, shared.tmem[2], 64);
    ptx::tcgen05_dealloc(cta_group_1, shared.tmem[3], 32);
    ptx::tcgen05_dealloc(cta_group_1, shared.tmem[4], 32);
  }
}
PARITY_CASE(allocations) {
  rt::launch(allocations, {.grid = {1, 1, 1}, .threads = kThreads, .shared_bytes = sizeof(Places)},
             test.in, test.out);
}

// ---- Products: a tile of one swizzle period of K, with scales, on accumulators of the input

inline constexpr uint32_t kRows = 128;  // of A in each CTA
inline constexpr uint32_t kMaxN = 256;
inline constexpr uint32_t kMaxSteps = 4;
inline constexpr uint32_t kMaxRowWords = 32;
inline constexpr uint32_t kAtomWords = 128;  // scales of 128 rows and K = 64
// Columns: D, then the scales of the steps.
inline constexpr uint32_t kColumnA = 256;
inline constexpr uint32_t kColumnB = kColumnA + 4 * kMaxSteps;

struct Input {
  uint32_t n;
  uint32_t row_bytes;  // 16 (no swizzle, two columns of 16), 32, 64 or 128
  uint32_t accumulate;
  uint32_t negate_a, negate_b;
  uint32_t shift;   // columns by which the scales of B start later
  uint32_t issuer;  // of a pair: rank of the CTA that issues
  uint32_t unused;
  uint32_t a[2][kRows][kMaxRowWords];  // per CTA
  uint32_t b[kMaxN][kMaxRowWords];
  uint32_t scales_a[2][kMaxSteps][kAtomWords];
  uint32_t scales_b[kMaxSteps][2][kAtomWords];
  uint32_t d[2][kRows][kMaxN];
};

struct SharedStorage {
  alignas(1024) uint32_t a[kRows * kMaxRowWords];
  alignas(1024) uint32_t b[kMaxN * kMaxRowWords];
  alignas(128) uint32_t scales_a[kMaxSteps][kAtomWords];
  alignas(128) uint32_t scales_b[kMaxSteps][2][kAtomWords];
  Mbarrier done;
  uint32_t tmem;
};

// The words of a row that a product uses: 8 for each step of K.
KB_DEVICE uint32_t steps_of(uint32_t row_bytes) {
  return row_bytes == 16 ? 1 : row_bytes / 32;
}

KB_DEVICE SmemTile tile_of(uint32_t row_bytes, uint32_t rows) {
  switch (row_bytes) {
    case 128:
      return kTileSw128;
    case 64:
      return {SmemSwizzle::k64B, 16, 512};
    case 32:
      return {SmemSwizzle::k32B, 16, 256};
    default:
      return {SmemSwizzle::kNone, rows * 16, 128};
  }
}

// Where word `word` of row `row` lies.
KB_DEVICE uint32_t place(uint32_t row, uint32_t word, uint32_t row_bytes, uint32_t rows) {
  const uint32_t chunk = word / 4;
  if (row_bytes == 16) return (chunk * rows + row) * 4 + word % 4;
  const uint32_t linear = row * row_bytes + chunk * 16;
  const uint32_t repeat = row_bytes / 16 - 1;
  return (linear ^ (linear >> 7 & repeat) << 4) / 4 + word % 4;
}

KB_DEVICE void place_tile(uint32_t* tile, const uint32_t (*rows)[kMaxRowWords], uint32_t count,
                          uint32_t row_bytes) {
  const uint32_t words = 8 * steps_of(row_bytes);
  for (uint32_t i = ptx::thread_index(); i < count * words; i += kThreads) {
    tile[place(i / words, i % words, row_bytes, count)] = rows[i / words][i % words];
  }
}

KB_DEVICE void place_scales(SharedStorage& shared, const Input& in, uint32_t rank) {
  for (uint32_t i = ptx::thread_index(); i < kMaxSteps * kAtomWords; i += kThreads) {
    shared.scales_a[i / kAtomWords][i % kAtomWords] =
        in.scales_a[rank][i / kAtomWords][i % kAtomWords];
    for (uint32_t atom = 0; atom < 2; ++atom) {
      shared.scales_b[i / kAtomWords][atom][i % kAtomWords] =
          in.scales_b[i / kAtomWords][atom][i % kAtomWords];
    }
  }
}

template <int kCtas>
KB_DEVICE void issue(const SharedStorage& shared, const Input& in, uint32_t tmem) {
  constexpr ptx::CtaGroup<kCtas> group;
  const uint32_t share = in.n / kCtas;
  const Mxf4nvf4Instruction instruction{
      .m = kRows * kCtas, .n = in.n, .negate_a = in.negate_a != 0, .negate_b = in.negate_b != 0};
  const uint64_t a =
      tcgen05_smem_descriptor(tile_of(in.row_bytes, kRows), ptx::smem_address(shared.a));
  const uint64_t b =
      tcgen05_smem_descriptor(tile_of(in.row_bytes, share), ptx::smem_address(shared.b));
  for (uint32_t step = 0; step < steps_of(in.row_bytes); ++step) {
    const uint32_t scales_a = tmem + kColumnA + 4 * step;
    const uint32_t scales_b = tmem + kColumnB + 8 * step;
    const auto atom = [](const uint32_t* words) {
      return tcgen05_smem_descriptor(kTileScales, ptx::smem_address(words));
    };
    ptx::tcgen05_cp_32x128b_warpx4(group, scales_a, atom(shared.scales_a[step]));
    ptx::tcgen05_cp_32x128b_warpx4(group, scales_b, atom(shared.scales_b[step][0]));
    ptx::tcgen05_cp_32x128b_warpx4(group, scales_b + 4, atom(shared.scales_b[step][1]));
    const bool accumulate = step != 0 || in.accumulate != 0;
    const uint64_t a_step = smem_descriptor_advance(a, 32 * step);
    const uint64_t b_step = smem_descriptor_advance(b, 32 * step);
    if (step % 2 == 0) {
      ptx::tcgen05_mma_mxf4nvf4_block_scale_4x(group, tmem, a_step, b_step, instruction.bits(),
                                               scales_a, scales_b + in.shift, accumulate);
    } else {
      ptx::tcgen05_mma_mxf4nvf4_block_scale_4x(group, ptx::collector_a_discard, tmem, a_step,
                                               b_step, instruction.bits(), scales_a,
                                               scales_b + in.shift, accumulate);
    }
  }
}

// Fills tensor memory before the product, and writes D behind it.
KB_DEVICE void store_d(const Input& in, uint32_t rank, uint32_t tmem) {
  for (uint32_t column = 0; column < kMaxN; column += 32) {
    store_32x32b<32>(tmem, column, in.d[rank][ptx::thread_index()]);
  }
  ptx::tcgen05_wait_st();
}
KB_DEVICE void write_d(uint32_t tmem, uint32_t rank, uint32_t* out) {
  for (uint32_t column = 0; column < kMaxN; column += 32) {
    uint32_t values[32];
    ptx::tcgen05_ld_32x32b(values, tmem + warp_lanes() + column);
    ptx::tcgen05_wait_ld(values);
    for (int r = 0; r < 32; ++r) {
      out[(rank * kRows + ptx::thread_index()) * kMaxN + column + r] = values[r];
    }
  }
}

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) product(const Input* in, uint32_t* out) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  if (ptx::warp_index() == 0) ptx::tcgen05_alloc(cta_group_1, &shared.tmem, 512);
  if (ptx::thread_index() == 0) {
    ptx::mbarrier_init(&shared.done, 1);
    ptx::fence_mbarrier_init_release_cluster();
  }
  place_tile(shared.a, in->a[0], kRows, in->row_bytes);
  place_tile(shared.b, in->b, in->n, in->row_bytes);
  place_scales(shared, *in, 0);
  ptx::fence_proxy_async(ptx::space_shared_cta);
  tensor_barrier();
  const uint32_t tmem = shared.tmem;
  store_d(*in, 0, tmem);
  tensor_barrier();
  if (ptx::warp_index() == 3) {
    if (ptx::elect_sync()) {
      issue<1>(shared, *in, tmem);
      ptx::tcgen05_commit(cta_group_1, &shared.done);
    }
    ptx::bar_warp_sync();
  }
  mbarrier_wait_parity(&shared.done, 0);
  ptx::tcgen05_fence_after_thread_sync();
  write_d(tmem, 0, out);
  tensor_barrier();
  if (ptx::warp_index() == 0) ptx::tcgen05_dealloc(cta_group_1, tmem, 512);
}
PARITY_CASE(product) {
  rt::launch(product,
             {.grid = {1, 1, 1}, .threads = kThreads, .shared_bytes = sizeof(SharedStorage)},
             reinterpret_cast<const Input*>(test.in), test.out);
}

KB_DEVICE void cluster_barrier() {
  ptx::tcgen05_fence_before_thread_sync();
  ptx::barrier_cluster_arrive(sem_release);
  ptx::barrier_cluster_wait(sem_acquire);
  ptx::tcgen05_fence_after_thread_sync();
}

// One CTA of the pair issues for both; its commit arrives in both.
KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) pair_product(const Input* in, uint32_t* out) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t rank = ptx::cluster_ctarank();
  if (ptx::warp_index() == 0) ptx::tcgen05_alloc(cta_group_2, &shared.tmem, 512);
  if (ptx::thread_index() == 0) {
    ptx::mbarrier_init(&shared.done, 1);
    ptx::fence_mbarrier_init_release_cluster();
  }
  const uint32_t share = in->n / 2;
  place_tile(shared.a, in->a[rank], kRows, in->row_bytes);
  place_tile(shared.b, in->b + rank * share, share, in->row_bytes);
  place_scales(shared, *in, rank);
  ptx::fence_proxy_async(ptx::space_shared_cta);
  cluster_barrier();
  const uint32_t tmem = shared.tmem;
  store_d(*in, rank, tmem);
  cluster_barrier();
  if (ptx::warp_index() == 3 && rank == in->issuer) {
    if (ptx::elect_sync()) {
      issue<2>(shared, *in, tmem);
      ptx::tcgen05_commit(cta_group_2, &shared.done, ClusterMask{3});
    }
    ptx::bar_warp_sync();
  }
  mbarrier_wait_parity(sem_acquire, scope_cluster, &shared.done, 0);
  ptx::tcgen05_fence_after_thread_sync();
  write_d(tmem, rank, out);
  cluster_barrier();
  if (ptx::warp_index() == 0) {
    ptx::tcgen05_relinquish_alloc_permit(cta_group_2);
    ptx::tcgen05_dealloc(cta_group_2, tmem, 512);
  }
  cluster_barrier();
}
PARITY_CASE(pair_product) {
  rt::launch(
      pair_product,
      {.grid = {2, 1, 1}, .threads = kThreads, .shared_bytes = sizeof(SharedStorage), .cluster = 2},
      reinterpret_cast<const Input*>(test.in), test.out);
}
