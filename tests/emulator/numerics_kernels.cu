// Kernels for the emulator's arithmetic: conversions, red, wgmma, and answers of launch control.
#include "descriptors.cuh"
#include "entry.cuh"
#include "ptx/clc.cuh"
#include "ptx/cluster.cuh"
#include "ptx/cvt.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/red.cuh"
#include "ptx/warp.cuh"
#include "ptx/wgmma.cuh"
#include "wait.cuh"

using namespace kb;

namespace {

// ---- conversions and red ---------------------------------------------------------------------

KB_GLOBAL void narrow(const float* in, uint32_t* f16, uint32_t* bf16, uint16_t* e4m3,
                      uint32_t count) {
  for (uint32_t i = ptx::thread_index(); i < count; i += 32) {
    const float lo = in[i];
    const float hi = in[count - 1 - i];
    f16[i] = __builtin_bit_cast(uint32_t, ptx::cvt_rn_f16x2_f32(lo, hi));
    bf16[i] = __builtin_bit_cast(uint32_t, ptx::cvt_rn_bf16x2_f32(lo, hi));
    e4m3[i] = __builtin_bit_cast(uint16_t, ptx::cvt_rn_satfinite_e4m3x2_f32(lo, hi));
  }
}

KB_GLOBAL void widen(uint32_t* f32, uint32_t* f16) {
  for (uint32_t i = ptx::thread_index(); i < 65536; i += 32) {
    f32[i] = __builtin_bit_cast(uint32_t, ptx::cvt_f32_f16({static_cast<uint16_t>(i)}));
    const auto pair = __builtin_bit_cast(e4m3x2, static_cast<uint16_t>(i));
    f16[i] = __builtin_bit_cast(uint32_t, ptx::cvt_rn_f16x2_e4m3x2(pair));
  }
}

KB_GLOBAL void add(float* sums, const float* values, uint32_t count, uint32_t rounds) {
  for (uint32_t round = 0; round < rounds; ++round) {
    for (uint32_t i = ptx::thread_index() * 4; i < count; i += 128) {
      const float four[4] = {values[i], values[i + 1], values[i + 2], values[i + 3]};
      const float two[2] = {values[i], values[i + 1]};
      ptx::red_relaxed_gpu_global_add_v4_f32(sums + i, four);
      ptx::red_relaxed_gpu_global_add_v2_f32(sums + count + i, two);
    }
  }
}

// ---- wgmma -----------------------------------------------------------------------------------

enum WgmmaFault : int {
  kRight = 0,
  kNoFence,
  kNoWait,  // accumulators are used before wait_group
  kNeverWaits,
  kNoProxyFence,   // B written by ordinary stores without fence.proxy.async
  kOverwriteTile,  // B overwritten before wait_group
  kPendingTile,    // wait_group leaves the group pending whose tile is overwritten
  kWaitTwice,      // no fault: the tile of the group that is complete
  kOneWarpLess,    // a warp does not take part
  kOneWaits,       // no fault: a warp overwrites B when its own wait is over
};

// a [steps][64][32], b [steps][columns][32]: the steps of K. d [64][columns].
struct Product {
  const uint8_t* a;
  const uint8_t* b;
  float* d;
  int32_t steps;
  int32_t swizzled;  // 128-byte swizzle, else none
  int32_t a_in_registers;
  int32_t fault;
};

template <int kColumns>
struct ProductStorage {
  alignas(1024) uint8_t a[2][64 * 128];
  alignas(1024) uint8_t b[2][kColumns * 128];
};

// Where byte `byte` of a row of `step` goes.
KB_DEVICE uint32_t place(bool swizzled, uint32_t step, uint32_t row, uint32_t byte) {
  if (!swizzled) return step * 32 * 8 + row / 8 * 1024 + byte / 16 * 128 + row % 8 * 16 + byte % 16;
  const uint32_t at = row * 128 + step % 4 * 32 + byte;
  return at ^ (at >> 7 & 7) << 4;
}

KB_DEVICE SmemTile tile_of(bool swizzled) {
  return swizzled ? kTileSw128 : SmemTile{SmemSwizzle::kNone, 128, 1024};
}

// Copies rows of eight words.
KB_DEVICE void fill(uint8_t* tile, const uint8_t* rows, uint32_t count, bool swizzled,
                    uint32_t step) {
  for (uint32_t i = ptx::thread_index(); i < count * 8; i += 128) {
    const uint32_t at = place(swizzled, step, i / 8, i % 8 * 4);
    *reinterpret_cast<uint32_t*>(tile + at) = *reinterpret_cast<const uint32_t*>(rows + i * 4);
  }
}

template <int kColumns, bool kF16>
KB_DEVICE void step_of(ProductStorage<kColumns>& storage, const Product& product, uint32_t step,
                       float (&d)[kColumns / 2]) {
  const bool swizzled = product.swizzled != 0;
  const SmemTile tile = tile_of(swizzled);
  const uint32_t offset = swizzled ? step % 4 * 32 : step * 256;
  const uint64_t b = wgmma_smem_descriptor(tile, ptx::smem_address(storage.b[step / 4]) + offset);
  if (product.a_in_registers != 0) {
    const uint32_t thread = ptx::thread_index();
    const uint32_t row = thread / 32 * 16 + thread % 32 / 4;
    uint32_t a[4];
    for (uint32_t r = 0; r < 4; ++r) {
      a[r] = 0;
      for (uint32_t byte = 0; byte < 4; ++byte) {
        const uint32_t at = 4 * (thread % 4) + byte + 16 * (r / 2);
        a[r] |= uint32_t{product.a[step * 2048 + (row + 8 * (r % 2)) * 32 + at]} << 8 * byte;
      }
    }
    if constexpr (kF16) {
      ptx::wgmma_mma_async_f32_f16_f16(d, a, b, step > 0);
    } else {
      ptx::wgmma_mma_async_f32_e4m3_e4m3(d, a, b, step > 0);
    }
    return;
  }
  const uint64_t a = wgmma_smem_descriptor(tile, ptx::smem_address(storage.a[step / 4]) + offset);
  if constexpr (kF16) {
    ptx::wgmma_mma_async_f32_f16_f16(d, a, b, step > 0);
  } else {
    ptx::wgmma_mma_async_f32_e4m3_e4m3(d, a, b, step > 0);
  }
}

template <int kColumns, bool kF16>
KB_GLOBAL void multiply(Product product) {
  auto& storage = shared_storage<ProductStorage<kColumns>>();
  const int fault = product.fault;
  const uint32_t thread = ptx::thread_index();
  for (int32_t step = 0; step < product.steps; ++step) {
    const bool swizzled = product.swizzled != 0;
    fill(storage.a[step / 4], product.a + step * 64 * 32, 64, swizzled, step);
    fill(storage.b[step / 4], product.b + step * kColumns * 32, kColumns, swizzled, step);
  }
  if (fault != kNoProxyFence) ptx::fence_proxy_async(ptx::space_shared_cta);
  ptx::bar_sync();
  if (fault == kOneWarpLess && ptx::warp_index() == 2) return;
  float d[kColumns / 2] = {};
  if (fault != kNoFence) ptx::wgmma_fence(d);
  for (int32_t step = 0; step < product.steps; ++step) {
    step_of<kColumns, kF16>(storage, product, static_cast<uint32_t>(step), d);
    // Two groups: the last step is one of its own.
    if (step + 2 >= product.steps) ptx::wgmma_commit_group();
  }
  if (fault == kOverwriteTile || fault == kPendingTile || fault == kWaitTwice) {
    if (fault != kOverwriteTile) ptx::wgmma_wait_group<1>();
    ptx::bar_sync();
    const uint32_t step = fault == kWaitTwice ? 0 : product.steps - 1;
    const uint32_t at = place(product.swizzled != 0, step, 0, 0);
    if (thread == 0) *reinterpret_cast<uint32_t*>(&storage.b[step / 4][at]) = 1;
  }
  if (fault != kNoWait && fault != kNeverWaits) ptx::wgmma_wait_group<0>(d);
  if (fault == kOneWaits && thread == 0) {
    *reinterpret_cast<uint32_t*>(&storage.b[0][place(product.swizzled != 0, 0, 0, 0)]) = 1;
  }
  for (uint32_t v = 0; v < kColumns / 2; ++v) {
    const uint32_t row = thread / 32 * 16 + thread % 32 / 4 + 8 * (v / 2 % 2);
    product.d[row * kColumns + 8 * (v / 4) + 2 * (thread % 4) + v % 2] = d[v];
  }
  if (fault == kNoWait) ptx::wgmma_wait_group<0>(d);
}

// ---- launch control --------------------------------------------------------------------------

enum ClaimFault : int {
  kClaimRight = 0,
  kClaimEarly,        // the answer is read before its barrier
  kClaimTwice,        // a request after an observed failure
  kClaimInFlight,     // a request is left in flight
  kClaimIndexOfNone,  // the index of an answer that gives nothing
};

struct ClaimStorage {
  ClcResponse response;
  Mbarrier arrived;
};

// Every CTA counts the tiles that it works on: its own, and those of clusters that it takes over.
template <bool kMulticast>
KB_GLOBAL void claim(uint32_t* worked, int fault) {
  auto& storage = shared_storage<ClaimStorage>();
  const uint32_t ranks = ptx::cluster_nctarank();
  const uint32_t rank = ptx::cluster_ctarank();
  if (ptx::thread_index() == 0) {
    ptx::mbarrier_init(&storage.arrived, 1);
    ptx::fence_mbarrier_init_release_cluster();
  }
  ptx::barrier_cluster_arrive(ptx::sem_release);
  ptx::barrier_cluster_wait(ptx::sem_acquire);
  CtaIndex tile = ptx::cta_index();
  uint32_t phase = 0;
  for (;; phase ^= 1) {
    if (ptx::thread_index() == 0) {
      const CtaIndex grid = ptx::cta_count();
      ++worked[(tile.z * grid.y + tile.y) * grid.x + tile.x];
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, &storage.arrived, 16);
    }
    ptx::barrier_cluster_arrive(ptx::sem_release);
    ptx::barrier_cluster_wait(ptx::sem_acquire);
    if (ptx::thread_index() == 0 && (!kMulticast || rank == 0)) {
      if (kMulticast) {
        ptx::clusterlaunchcontrol_try_cancel_multicast_cluster_all(&storage.response,
                                                                   &storage.arrived);
      } else {
        ptx::clusterlaunchcontrol_try_cancel(&storage.response, &storage.arrived);
      }
    }
    if (fault == kClaimInFlight) return;
    if (fault != kClaimEarly) {
      mbarrier_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &storage.arrived, phase);
    }
    if (!ptx::clusterlaunchcontrol_query_cancel_is_canceled(&storage.response)) break;
    tile = ptx::clusterlaunchcontrol_query_cancel_get_first_ctaid(&storage.response);
    tile.x += kMulticast ? rank : 0;
    ptx::fence_proxy_async(ptx::space_shared_cta);
  }
  if (fault == kClaimIndexOfNone) {
    ptx::clusterlaunchcontrol_query_cancel_get_first_ctaid(&storage.response);
  }
  if (fault == kClaimTwice && ptx::thread_index() == 0) {
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, &storage.arrived, 16);
    ptx::fence_proxy_async(ptx::space_shared_cta);
    ptx::clusterlaunchcontrol_try_cancel(&storage.response, &storage.arrived);
    mbarrier_wait_parity(&storage.arrived, phase ^ 1);
  }
  if (ranks > 1) {
    ptx::barrier_cluster_arrive(ptx::sem_release);
    ptx::barrier_cluster_wait(ptx::sem_acquire);
  }
}

template <typename Launch>
int guarded(char* message, Launch launch) {
  try {
    launch();
  } catch (const std::exception& error) {
    snprintf(message, 256, "%s", error.what());
    return 1;
  }
  return 0;
}

template <int kColumns, bool kF16>
void launch_product(const Product& product) {
  rt::launch(multiply<kColumns, kF16>,
             {.grid = {1, 1, 1}, .threads = 128, .shared_bytes = sizeof(ProductStorage<kColumns>)},
             product);
}

}  // namespace

KB_EXPORT int run_narrow(const float* in, uint32_t* f16, uint32_t* bf16, uint16_t* e4m3,
                         uint32_t count, char* message) {
  return guarded(message, [=] {
    rt::launch(narrow, {.grid = {1, 1, 1}, .threads = 32, .shared_bytes = 0}, in, f16, bf16, e4m3,
               count);
  });
}

KB_EXPORT int run_widen(uint32_t* f32, uint32_t* f16, char* message) {
  return guarded(message, [=] {
    rt::launch(widen, {.grid = {1, 1, 1}, .threads = 32, .shared_bytes = 0}, f32, f16);
  });
}

KB_EXPORT int run_add(float* sums, const float* values, uint32_t count, uint32_t rounds,
                      uint32_t ctas, char* message) {
  return guarded(message, [=] {
    rt::launch(add, {.grid = {ctas, 1, 1}, .threads = 32, .shared_bytes = 0}, sums, values, count,
               rounds);
  });
}

KB_EXPORT int run_product(const Product* product, int columns, int f16, char* message) {
  return guarded(message, [=] {
    if (f16 != 0 && columns == 64) {
      launch_product<64, true>(*product);
    } else if (f16 != 0) {
      launch_product<128, true>(*product);
    } else if (columns == 8) {
      launch_product<8, false>(*product);
    } else if (columns == 64) {
      launch_product<64, false>(*product);
    } else {
      launch_product<128, false>(*product);
    }
  });
}

KB_EXPORT int run_claim(const CtaIndex* grid, uint32_t cluster, int multicast, uint32_t* worked,
                        int fault, char* message) {
  return guarded(message, [=] {
    const rt::LaunchConfig config{.grid = *grid,
                                  .threads = 32,
                                  .shared_bytes = sizeof(ClaimStorage),
                                  .cluster = cluster,
                                  .launch_control = true};
    rt::launch(multicast != 0 ? claim<true> : claim<false>, config, worked, fault);
  });
}
