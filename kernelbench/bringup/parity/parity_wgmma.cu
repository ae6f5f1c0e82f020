// Warpgroup products: each N, operands of A from shared memory and from registers, accumulators
// that the input chooses.
#include "descriptors.cuh"
#include "parity.cuh"
#include "ptx/fence.cuh"
#include "ptx/warp.cuh"
#include "ptx/wgmma.cuh"

inline constexpr uint32_t kThreads = 128;
inline constexpr uint32_t kRowWords = 32;  // 128 bytes of K
inline constexpr uint32_t kRowsA = 64;
inline constexpr uint32_t kMaxN = 256;

struct Input {
  uint32_t steps;       // of 32 bytes of K, 1 … 4
  uint32_t accumulate;  // whether the first adds to what is there
  uint32_t unused[2];
  uint32_t a[kRowsA][kRowWords];
  uint32_t b[kMaxN][kRowWords];
  uint32_t fragments[4][kThreads][4];  // A from registers, per step
  float d[kThreads][128];
};

struct SharedStorage {
  alignas(1024) uint32_t a[kRowsA * kRowWords];
  alignas(1024) uint32_t b[kMaxN * kRowWords];
};

// Rows of 128 bytes with the 128-byte swizzle.
KB_DEVICE void place(uint32_t* tile, const uint32_t (*rows)[kRowWords], uint32_t count) {
  for (uint32_t i = ptx::thread_index(); i < count * kRowWords; i += kThreads) {
    const uint32_t row = i / kRowWords;
    const uint32_t word = i % kRowWords;
    tile[row * kRowWords + (word / 4 ^ row % 8) * 4 + word % 4] = rows[row][word];
  }
}

struct E4m3 {
  template <int kCount>
  static KB_DEVICE void shared_a(float (&d)[kCount], uint64_t a, uint64_t b, bool accumulate) {
    ptx::wgmma_mma_async_f32_e4m3_e4m3(d, a, b, accumulate);
  }
  template <int kCount>
  static KB_DEVICE void register_a(float (&d)[kCount], const uint32_t (&a)[4], uint64_t b,
                                   bool accumulate) {
    ptx::wgmma_mma_async_f32_e4m3_e4m3(d, a, b, accumulate);
  }
};
struct F16 {
  template <int kCount>
  static KB_DEVICE void shared_a(float (&d)[kCount], uint64_t a, uint64_t b, bool accumulate) {
    ptx::wgmma_mma_async_f32_f16_f16(d, a, b, accumulate);
  }
  template <int kCount>
  static KB_DEVICE void register_a(float (&d)[kCount], const uint32_t (&a)[4], uint64_t b,
                                   bool accumulate) {
    ptx::wgmma_mma_async_f32_f16_f16(d, a, b, accumulate);
  }
};

template <typename Type, int kCount, bool kFromRegisters>
KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) products(const Input* in, float* out) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t thread = ptx::thread_index();
  place(shared.a, in->a, kRowsA);
  place(shared.b, in->b, 2 * kCount);
  ptx::fence_proxy_async(ptx::space_shared_cta);
  ptx::bar_sync();

  float d[kCount];
  for (int v = 0; v < kCount; ++v) d[v] = in->d[thread][v];
  const uint64_t a = wgmma_smem_descriptor(kTileSw128, ptx::smem_address(shared.a));
  const uint64_t b = wgmma_smem_descriptor(kTileSw128, ptx::smem_address(shared.b));
  for (uint32_t step = 0; step < in->steps; ++step) {
    const bool accumulate = step != 0 || in->accumulate != 0;
    const uint64_t b_step = smem_descriptor_advance(b, 32 * step);
    uint32_t fragment[4];
    for (int i = 0; i < 4; ++i) fragment[i] = in->fragments[step][thread][i];
    ptx::wgmma_fence(d);
    if constexpr (kFromRegisters) {
      Type::register_a(d, fragment, b_step, accumulate);
    } else {
      Type::shared_a(d, smem_descriptor_advance(a, 32 * step), b_step, accumulate);
    }
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>(d);
  }
  for (int v = 0; v < kCount; ++v) out[thread * kCount + v] = d[v];
}

template <typename Type, int kCount, bool kFromRegisters>
void multiply(const Case& test) {
  rt::launch(products<Type, kCount, kFromRegisters>,
             {.grid = {1, 1, 1}, .threads = kThreads, .shared_bytes = sizeof(SharedStorage)},
             reinterpret_cast<const Input*>(test.in), reinterpret_cast<float*>(test.out));
}

#define PRODUCT(type, name, count)          \
  PARITY_CASE(name##_##count##_shared) {    \
    multiply<type, count, false>(test);     \
  }                                         \
  PARITY_CASE(name##_##count##_registers) { \
    multiply<type, count, true>(test);      \
  }

PRODUCT(E4m3, e4m3, 4)
PRODUCT(E4m3, e4m3, 8)
PRODUCT(E4m3, e4m3, 16)
PRODUCT(E4m3, e4m3, 32)
PRODUCT(E4m3, e4m3, 64)
PRODUCT(E4m3, e4m3, 128)
PRODUCT(F16, f16, 32)
PRODUCT(F16, f16, 64)
PRODUCT(F16, f16, 128)
