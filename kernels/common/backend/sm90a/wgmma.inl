#pragma once

#include "operands.inl"

namespace kb::ptx {

template <typename T>
KB_DEVICE void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

template <typename T>
KB_DEVICE void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int kPending, typename T>
KB_DEVICE void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// `n` accumulators as operands that the text does not name: the compiler keeps their uses in order.
// clang-format off
#define KB_WGMMA_FENCE(n)                                                                 \
  if constexpr (kCount == n) {                                                            \
    asm volatile("wgmma.fence.sync.aligned;" : KB_OPERANDS_##n("+f", d) :: "memory");     \
  }
#define KB_WGMMA_WAIT(n)                                                                  \
  if constexpr (kCount == n) {                                                            \
    asm volatile("wgmma.wait_group.sync.aligned %" #n ";"                                 \
                 : KB_OPERANDS_##n("+f", d) : "n"(kPending) : "memory");                  \
  }
// clang-format on

namespace detail {

KB_HOST_DEVICE constexpr bool is_accumulator_count(int count) {
  return count >= 4 && count <= 128 && (count & (count - 1)) == 0;
}

}  // namespace detail

template <int kCount, typename T>
KB_DEVICE void wgmma_fence(float (&d)[kCount]) {
  static_assert(detail::is_accumulator_count(kCount), "4, 8, … 128 accumulators");
  KB_WGMMA_FENCE(4)
  KB_WGMMA_FENCE(8)
  KB_WGMMA_FENCE(16)
  KB_WGMMA_FENCE(32)
  KB_WGMMA_FENCE(64)
  KB_WGMMA_FENCE(128)
}

template <int kPending, int kCount, typename T>
KB_DEVICE void wgmma_wait_group(float (&d)[kCount]) {
  static_assert(detail::is_accumulator_count(kCount), "4, 8, … 128 accumulators");
  KB_WGMMA_WAIT(4)
  KB_WGMMA_WAIT(8)
  KB_WGMMA_WAIT(16)
  KB_WGMMA_WAIT(32)
  KB_WGMMA_WAIT(64)
  KB_WGMMA_WAIT(128)
}

#undef KB_WGMMA_FENCE
#undef KB_WGMMA_WAIT

// One shape with `n` accumulators, operands %0 … %(n-1); the numbers after them are those of the
// operands that follow. `flags`: the immediates for signs and transposition.
// clang-format off
#define KB_WGMMA_SS(shape, n, a_, b_, p_, flags)                                          \
  if constexpr (kCount == n) {                                                            \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %" #p_ ", 0; "                            \
                 "wgmma.mma_async.sync.aligned." shape " {" KB_NUMBERS_##n "}, "          \
                 "%" #a_ ", %" #b_ ", p, " flags ";}"                                     \
                 : KB_OPERANDS_##n("+f", d)                                               \
                 : "l"(a), "l"(b), "r"(static_cast<uint32_t>(accumulate)) : "memory");    \
  }
#define KB_WGMMA_RS(shape, n, a0, a1, a2, a3, b_, p_, flags)                              \
  if constexpr (kCount == n) {                                                            \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %" #p_ ", 0; "                            \
                 "wgmma.mma_async.sync.aligned." shape " {" KB_NUMBERS_##n "}, "          \
                 "{%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b_ ", p, " flags ";}"     \
                 : KB_OPERANDS_##n("+f", d)                                               \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                    \
                   "r"(static_cast<uint32_t>(accumulate)) : "memory");                    \
  }
// clang-format on

template <int kCount, typename T>
KB_DEVICE void wgmma_mma_async_f32_e4m3_e4m3(float (&d)[kCount], uint64_t a, uint64_t b,
                                             bool accumulate) {
  static_assert(
      kCount == 4 || kCount == 8 || kCount == 16 || kCount == 32 || kCount == 64 || kCount == 128,
      "N / 2 accumulators for N = 8, 16, 32, 64, 128 or 256");
  KB_WGMMA_SS("m64n8k32.f32.e4m3.e4m3", 4, 4, 5, 6, "1, 1")
  KB_WGMMA_SS("m64n16k32.f32.e4m3.e4m3", 8, 8, 9, 10, "1, 1")
  KB_WGMMA_SS("m64n32k32.f32.e4m3.e4m3", 16, 16, 17, 18, "1, 1")
  KB_WGMMA_SS("m64n64k32.f32.e4m3.e4m3", 32, 32, 33, 34, "1, 1")
  KB_WGMMA_SS("m64n128k32.f32.e4m3.e4m3", 64, 64, 65, 66, "1, 1")
  KB_WGMMA_SS("m64n256k32.f32.e4m3.e4m3", 128, 128, 129, 130, "1, 1")
}

template <int kCount, typename T>
KB_DEVICE void wgmma_mma_async_f32_e4m3_e4m3(float (&d)[kCount], const uint32_t (&a)[4], uint64_t b,
                                             bool accumulate) {
  static_assert(
      kCount == 4 || kCount == 8 || kCount == 16 || kCount == 32 || kCount == 64 || kCount == 128,
      "N / 2 accumulators for N = 8, 16, 32, 64, 128 or 256");
  KB_WGMMA_RS("m64n8k32.f32.e4m3.e4m3", 4, 4, 5, 6, 7, 8, 9, "1, 1")
  KB_WGMMA_RS("m64n16k32.f32.e4m3.e4m3", 8, 8, 9, 10, 11, 12, 13, "1, 1")
  KB_WGMMA_RS("m64n32k32.f32.e4m3.e4m3", 16, 16, 17, 18, 19, 20, 21, "1, 1")
  KB_WGMMA_RS("m64n64k32.f32.e4m3.e4m3", 32, 32, 33, 34, 35, 36, 37, "1, 1")
  KB_WGMMA_RS("m64n128k32.f32.e4m3.e4m3", 64, 64, 65, 66, 67, 68, 69, "1, 1")
  KB_WGMMA_RS("m64n256k32.f32.e4m3.e4m3", 128, 128, 129, 130, 131, 132, 133, "1, 1")
}

template <int kCount, typename T>
KB_DEVICE void wgmma_mma_async_f32_f16_f16(float (&d)[kCount], uint64_t a, uint64_t b,
                                           bool accumulate) {
  static_assert(kCount == 32 || kCount == 64 || kCount == 128,
                "N / 2 accumulators for N = 64, 128 or 256");
  KB_WGMMA_SS("m64n64k16.f32.f16.f16", 32, 32, 33, 34, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n128k16.f32.f16.f16", 64, 64, 65, 66, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n256k16.f32.f16.f16", 128, 128, 129, 130, "1, 1, 0, 0")
}

template <int kCount, typename T>
KB_DEVICE void wgmma_mma_async_f32_f16_f16(float (&d)[kCount], const uint32_t (&a)[4], uint64_t b,
                                           bool accumulate) {
  static_assert(kCount == 32 || kCount == 64 || kCount == 128,
                "N / 2 accumulators for N = 64, 128 or 256");
  KB_WGMMA_RS("m64n64k16.f32.f16.f16", 32, 32, 33, 34, 35, 36, 37, "1, 1, 0")
  KB_WGMMA_RS("m64n128k16.f32.f16.f16", 64, 64, 65, 66, 67, 68, 69, "1, 1, 0")
  KB_WGMMA_RS("m64n256k16.f32.f16.f16", 128, 128, 129, 130, 131, 132, 133, "1, 1, 0")
}

#undef KB_WGMMA_SS
#undef KB_WGMMA_RS

}  // namespace kb::ptx
