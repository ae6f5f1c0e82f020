// What the checker believes of warpgroups beyond the letter of the PTX ISA; points_order.cu says
// how such a probe is made.
#include "descriptors.cuh"
#include "parity.cuh"
#include "ptx/cvt.cuh"
#include "ptx/fence.cuh"
#include "ptx/red.cuh"
#include "ptx/warp.cuh"
#include "ptx/wgmma.cuh"

inline constexpr uint32_t kRounds = 64;
inline constexpr uint32_t kThreads = 128;
inline constexpr uint32_t kPatience = 64;

// ---- groups-of-warpgroups: a warp overwrites B when its own wait for the product is over

struct Overwritten {
  alignas(1024) uint32_t b[8][32];  // eight columns, all elements equal
};

KB_DEVICE uint32_t pair_of(float value) {
  return __builtin_bit_cast(uint32_t, ptx::cvt_rn_f16x2_f32(value, value));
}

// out[thread]: rounds in which its sums are others than those of its round's value; the other warps
// come late. Planted: the warp overwrites B before it multiplies.
template <bool kPlanted>
KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1)
    waited_by_one(const uint32_t* in, uint32_t* passed, uint32_t* out) {
  Overwritten& shared = shared_storage<Overwritten>();
  const uint32_t thread = ptx::thread_index();
  const bool overwrites = ptx::warp_index() == 0;
  const uint32_t ones = pair_of(1);
  const uint32_t a[4] = {ones, ones, ones, ones};
  const uint64_t b = wgmma_smem_descriptor(kTileSw128, ptx::smem_address(shared.b));
  const auto overwrite = [&] {
    for (uint32_t i = 0; i < 8; ++i) shared.b[i][thread] = pair_of(-1);
    ptx::fence_proxy_async(ptx::space_shared_cta);
  };
  uint32_t wrong = 0;
  for (uint32_t round = 0; round < kRounds; ++round) {
    const float value = static_cast<float>(in[round] % 64 + 1);
    for (uint32_t i = thread; i < 8 * 32; i += kThreads) shared.b[i / 32][i % 32] = pair_of(value);
    ptx::fence_proxy_async(ptx::space_shared_cta);
    ptx::bar_sync();
    if (kPlanted && overwrites) overwrite();
    if (!overwrites) {
      for (uint32_t i = 0; i < kPatience; ++i) ptx::atom_relaxed_gpu_global_add_u32(passed, 1);
      ptx::bar_warp_sync();
    }
    float sums[4];
    ptx::wgmma_fence(sums);
    ptx::wgmma_mma_async_f32_f16_f16(sums, a, b, false);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>(sums);
    if (!kPlanted && overwrites) overwrite();
    bool right = true;
    for (const float sum : sums) right &= sum == 16 * value;
    if (!right) ++wrong;
    ptx::bar_sync();
  }
  out[thread] = wrong;
}
template <bool kPlanted>
void wait_by_one(const Case& test) {
  auto* passed = static_cast<uint32_t*>(rt::device_malloc(sizeof(uint32_t)));
  rt::memset_async(passed, 0, sizeof(uint32_t), {});
  rt::launch(waited_by_one<kPlanted>,
             {.grid = {1, 1, 1}, .threads = kThreads, .shared_bytes = sizeof(Overwritten)}, test.in,
             passed, test.out);
  rt::device_free(passed);
}
PARITY_CASE(waited_by_one) {
  wait_by_one<false>(test);
}
PARITY_CASE(waited_by_one_planted) {
  wait_by_one<true>(test);
}
