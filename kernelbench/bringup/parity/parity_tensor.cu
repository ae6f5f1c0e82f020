// Tensor memory and block-scaled products, in one CTA and in a pair.
#include "product.cuh"
#include "ptx/cluster.cuh"

using ptx::scope_cluster;
using ptx::sem_acquire;
using ptx::sem_release;

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

template <int kCtas>
KB_DEVICE void issue(const SharedStorage& shared, const Input& in, uint32_t tmem) {
  for (uint32_t step = 0; step < steps_of(in.row_bytes); ++step) {
    const uint32_t scales_a = tmem + kColumnA + 4 * step;
    const uint32_t scales_b = tmem + kColumnB + 8 * step;
    copy_scales<kCtas>(shared, step, scales_a, scales_b);
    multiply<kCtas>(shared, in, step, tmem, scales_a, scales_b + in.shift,
                    step != 0 || in.accumulate != 0);
  }
}

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) product(const Input* in, uint32_t* out) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t tmem = begin(shared, *in);
  perform(shared, 0, [&] { issue<1>(shared, *in, tmem); });
  write_d(tmem, 0, out);
  end(tmem);
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
