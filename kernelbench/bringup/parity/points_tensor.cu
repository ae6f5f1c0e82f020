// What no document settles about block-scaled products: one question for each kernel.
#include "product.cuh"

// ---- Scales of a step overwrite those of the step before, with no wait after its product

inline constexpr uint32_t kRounds = 8;

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) reused_scales(const Input* in, uint32_t* out) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t tmem = begin(shared, *in);
  perform(shared, 0, [&] {
    for (uint32_t round = 0; round < kRounds; ++round) {
      for (uint32_t step = 0; step < steps_of(in->row_bytes); ++step) {
        copy_scales<1>(shared, step, tmem + kColumnA, tmem + kColumnB);
        multiply<1>(shared, *in, step, tmem, tmem + kColumnA, tmem + kColumnB, true);
      }
    }
  });
  write_d(tmem, 0, out);
  end(tmem);
}
PARITY_CASE(reused_scales) {
  rt::launch(reused_scales,
             {.grid = {1, 1, 1}, .threads = kThreads, .shared_bytes = sizeof(SharedStorage)},
             reinterpret_cast<const Input*>(test.in), test.out);
}

// ---- One of the four copies of A's scales becomes NaN: for each of the four, D

inline constexpr uint32_t kNan = 0x7f7f7f7f;

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) one_bad_copy(const Input* in, uint32_t* out) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t tmem = begin(shared, *in);
  for (uint32_t bad = 0; bad < 4; ++bad) {
    perform(shared, 0, [&] { copy_scales<1>(shared, 0, tmem + kColumnA, tmem + kColumnB); });
    if (ptx::warp_index() == bad) {
      const uint32_t values[4] = {kNan, kNan, kNan, kNan};
      ptx::tcgen05_st_32x32b(tmem + warp_lanes() + kColumnA, values);
      ptx::tcgen05_wait_st();
    }
    tensor_barrier();
    perform(shared, 1,
            [&] { multiply<1>(shared, *in, 0, tmem, tmem + kColumnA, tmem + kColumnB, false); });
    write_d(tmem, bad, out);
    tensor_barrier();
  }
  end(tmem);
}
PARITY_CASE(one_bad_copy) {
  rt::launch(one_bad_copy,
             {.grid = {1, 1, 1}, .threads = kThreads, .shared_bytes = sizeof(SharedStorage)},
             reinterpret_cast<const Input*>(test.in), test.out);
}

// ---- D starts at any column

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) placed_product(const Input* in, uint32_t* out) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t tmem = begin(shared, *in);
  perform(shared, 0, [&] {
    copy_scales<1>(shared, 0, tmem + kColumnA, tmem + kColumnB);
    multiply<1>(shared, *in, 0, tmem + in->column, tmem + kColumnA, tmem + kColumnB, false);
  });
  write_d(tmem, 0, out);
  end(tmem);
}
PARITY_CASE(placed_product) {
  rt::launch(placed_product,
             {.grid = {1, 1, 1}, .threads = kThreads, .shared_bytes = sizeof(SharedStorage)},
             reinterpret_cast<const Input*>(test.in), test.out);
}

// ---- A commit with nothing before it, looked at a bounded number of times

inline constexpr uint32_t kLooks = 1 << 20;

struct Nothing {
  Mbarrier bar;
};

KB_GLOBAL void KB_LAUNCH_BOUNDS(32, 1) empty_commit(uint32_t* out) {
  Nothing& shared = shared_storage<Nothing>();
  if (ptx::thread_index() != 0) return;
  ptx::mbarrier_init(&shared.bar, 1);
  ptx::fence_mbarrier_init_release_cluster();
  ptx::tcgen05_commit(cta_group_1, &shared.bar);
  uint32_t arrived = 0;
  for (uint32_t look = 0; look < kLooks && arrived == 0; ++look) {
    arrived = ptx::mbarrier_test_wait_parity(ptx::sem_acquire, ptx::scope_cta, &shared.bar, 0);
  }
  out[0] = arrived;
}
PARITY_CASE(empty_commit) {
  rt::launch(empty_commit, {.grid = {1, 1, 1}, .threads = 32, .shared_bytes = sizeof(Nothing)},
             test.out);
}
