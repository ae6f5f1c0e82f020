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
  return count >= 4 && count <= 128 && count % 4 == 0;
}

}  // namespace detail

template <int kCount, typename T>
KB_DEVICE void wgmma_fence(float (&d)[kCount]) {
  static_assert(detail::is_accumulator_count(kCount), "4, 8, 12, … 128 accumulators");
  KB_WGMMA_FENCE(4)
  KB_WGMMA_FENCE(8)
  KB_WGMMA_FENCE(12)
  KB_WGMMA_FENCE(16)
  KB_WGMMA_FENCE(20)
  KB_WGMMA_FENCE(24)
  KB_WGMMA_FENCE(28)
  KB_WGMMA_FENCE(32)
  KB_WGMMA_FENCE(36)
  KB_WGMMA_FENCE(40)
  KB_WGMMA_FENCE(44)
  KB_WGMMA_FENCE(48)
  KB_WGMMA_FENCE(52)
  KB_WGMMA_FENCE(56)
  KB_WGMMA_FENCE(60)
  KB_WGMMA_FENCE(64)
  KB_WGMMA_FENCE(68)
  KB_WGMMA_FENCE(72)
  KB_WGMMA_FENCE(76)
  KB_WGMMA_FENCE(80)
  KB_WGMMA_FENCE(84)
  KB_WGMMA_FENCE(88)
  KB_WGMMA_FENCE(92)
  KB_WGMMA_FENCE(96)
  KB_WGMMA_FENCE(100)
  KB_WGMMA_FENCE(104)
  KB_WGMMA_FENCE(108)
  KB_WGMMA_FENCE(112)
  KB_WGMMA_FENCE(116)
  KB_WGMMA_FENCE(120)
  KB_WGMMA_FENCE(124)
  KB_WGMMA_FENCE(128)
}

template <int kPending, int kCount, typename T>
KB_DEVICE void wgmma_wait_group(float (&d)[kCount]) {
  static_assert(detail::is_accumulator_count(kCount), "4, 8, 12, … 128 accumulators");
  KB_WGMMA_WAIT(4)
  KB_WGMMA_WAIT(8)
  KB_WGMMA_WAIT(12)
  KB_WGMMA_WAIT(16)
  KB_WGMMA_WAIT(20)
  KB_WGMMA_WAIT(24)
  KB_WGMMA_WAIT(28)
  KB_WGMMA_WAIT(32)
  KB_WGMMA_WAIT(36)
  KB_WGMMA_WAIT(40)
  KB_WGMMA_WAIT(44)
  KB_WGMMA_WAIT(48)
  KB_WGMMA_WAIT(52)
  KB_WGMMA_WAIT(56)
  KB_WGMMA_WAIT(60)
  KB_WGMMA_WAIT(64)
  KB_WGMMA_WAIT(68)
  KB_WGMMA_WAIT(72)
  KB_WGMMA_WAIT(76)
  KB_WGMMA_WAIT(80)
  KB_WGMMA_WAIT(84)
  KB_WGMMA_WAIT(88)
  KB_WGMMA_WAIT(92)
  KB_WGMMA_WAIT(96)
  KB_WGMMA_WAIT(100)
  KB_WGMMA_WAIT(104)
  KB_WGMMA_WAIT(108)
  KB_WGMMA_WAIT(112)
  KB_WGMMA_WAIT(116)
  KB_WGMMA_WAIT(120)
  KB_WGMMA_WAIT(124)
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
  static_assert(detail::is_accumulator_count(kCount), "N / 2 accumulators for N = 8, 16, … 256");
  KB_WGMMA_SS("m64n8k32.f32.e4m3.e4m3", 4, 4, 5, 6, "1, 1")
  KB_WGMMA_SS("m64n16k32.f32.e4m3.e4m3", 8, 8, 9, 10, "1, 1")
  KB_WGMMA_SS("m64n24k32.f32.e4m3.e4m3", 12, 12, 13, 14, "1, 1")
  KB_WGMMA_SS("m64n32k32.f32.e4m3.e4m3", 16, 16, 17, 18, "1, 1")
  KB_WGMMA_SS("m64n40k32.f32.e4m3.e4m3", 20, 20, 21, 22, "1, 1")
  KB_WGMMA_SS("m64n48k32.f32.e4m3.e4m3", 24, 24, 25, 26, "1, 1")
  KB_WGMMA_SS("m64n56k32.f32.e4m3.e4m3", 28, 28, 29, 30, "1, 1")
  KB_WGMMA_SS("m64n64k32.f32.e4m3.e4m3", 32, 32, 33, 34, "1, 1")
  KB_WGMMA_SS("m64n72k32.f32.e4m3.e4m3", 36, 36, 37, 38, "1, 1")
  KB_WGMMA_SS("m64n80k32.f32.e4m3.e4m3", 40, 40, 41, 42, "1, 1")
  KB_WGMMA_SS("m64n88k32.f32.e4m3.e4m3", 44, 44, 45, 46, "1, 1")
  KB_WGMMA_SS("m64n96k32.f32.e4m3.e4m3", 48, 48, 49, 50, "1, 1")
  KB_WGMMA_SS("m64n104k32.f32.e4m3.e4m3", 52, 52, 53, 54, "1, 1")
  KB_WGMMA_SS("m64n112k32.f32.e4m3.e4m3", 56, 56, 57, 58, "1, 1")
  KB_WGMMA_SS("m64n120k32.f32.e4m3.e4m3", 60, 60, 61, 62, "1, 1")
  KB_WGMMA_SS("m64n128k32.f32.e4m3.e4m3", 64, 64, 65, 66, "1, 1")
  KB_WGMMA_SS("m64n136k32.f32.e4m3.e4m3", 68, 68, 69, 70, "1, 1")
  KB_WGMMA_SS("m64n144k32.f32.e4m3.e4m3", 72, 72, 73, 74, "1, 1")
  KB_WGMMA_SS("m64n152k32.f32.e4m3.e4m3", 76, 76, 77, 78, "1, 1")
  KB_WGMMA_SS("m64n160k32.f32.e4m3.e4m3", 80, 80, 81, 82, "1, 1")
  KB_WGMMA_SS("m64n168k32.f32.e4m3.e4m3", 84, 84, 85, 86, "1, 1")
  KB_WGMMA_SS("m64n176k32.f32.e4m3.e4m3", 88, 88, 89, 90, "1, 1")
  KB_WGMMA_SS("m64n184k32.f32.e4m3.e4m3", 92, 92, 93, 94, "1, 1")
  KB_WGMMA_SS("m64n192k32.f32.e4m3.e4m3", 96, 96, 97, 98, "1, 1")
  KB_WGMMA_SS("m64n200k32.f32.e4m3.e4m3", 100, 100, 101, 102, "1, 1")
  KB_WGMMA_SS("m64n208k32.f32.e4m3.e4m3", 104, 104, 105, 106, "1, 1")
  KB_WGMMA_SS("m64n216k32.f32.e4m3.e4m3", 108, 108, 109, 110, "1, 1")
  KB_WGMMA_SS("m64n224k32.f32.e4m3.e4m3", 112, 112, 113, 114, "1, 1")
  KB_WGMMA_SS("m64n232k32.f32.e4m3.e4m3", 116, 116, 117, 118, "1, 1")
  KB_WGMMA_SS("m64n240k32.f32.e4m3.e4m3", 120, 120, 121, 122, "1, 1")
  KB_WGMMA_SS("m64n248k32.f32.e4m3.e4m3", 124, 124, 125, 126, "1, 1")
  KB_WGMMA_SS("m64n256k32.f32.e4m3.e4m3", 128, 128, 129, 130, "1, 1")
}

template <int kCount, typename T>
KB_DEVICE void wgmma_mma_async_f32_e4m3_e4m3(float (&d)[kCount], const uint32_t (&a)[4], uint64_t b,
                                             bool accumulate) {
  static_assert(detail::is_accumulator_count(kCount), "N / 2 accumulators for N = 8, 16, … 256");
  KB_WGMMA_RS("m64n8k32.f32.e4m3.e4m3", 4, 4, 5, 6, 7, 8, 9, "1, 1")
  KB_WGMMA_RS("m64n16k32.f32.e4m3.e4m3", 8, 8, 9, 10, 11, 12, 13, "1, 1")
  KB_WGMMA_RS("m64n24k32.f32.e4m3.e4m3", 12, 12, 13, 14, 15, 16, 17, "1, 1")
  KB_WGMMA_RS("m64n32k32.f32.e4m3.e4m3", 16, 16, 17, 18, 19, 20, 21, "1, 1")
  KB_WGMMA_RS("m64n40k32.f32.e4m3.e4m3", 20, 20, 21, 22, 23, 24, 25, "1, 1")
  KB_WGMMA_RS("m64n48k32.f32.e4m3.e4m3", 24, 24, 25, 26, 27, 28, 29, "1, 1")
  KB_WGMMA_RS("m64n56k32.f32.e4m3.e4m3", 28, 28, 29, 30, 31, 32, 33, "1, 1")
  KB_WGMMA_RS("m64n64k32.f32.e4m3.e4m3", 32, 32, 33, 34, 35, 36, 37, "1, 1")
  KB_WGMMA_RS("m64n72k32.f32.e4m3.e4m3", 36, 36, 37, 38, 39, 40, 41, "1, 1")
  KB_WGMMA_RS("m64n80k32.f32.e4m3.e4m3", 40, 40, 41, 42, 43, 44, 45, "1, 1")
  KB_WGMMA_RS("m64n88k32.f32.e4m3.e4m3", 44, 44, 45, 46, 47, 48, 49, "1, 1")
  KB_WGMMA_RS("m64n96k32.f32.e4m3.e4m3", 48, 48, 49, 50, 51, 52, 53, "1, 1")
  KB_WGMMA_RS("m64n104k32.f32.e4m3.e4m3", 52, 52, 53, 54, 55, 56, 57, "1, 1")
  KB_WGMMA_RS("m64n112k32.f32.e4m3.e4m3", 56, 56, 57, 58, 59, 60, 61, "1, 1")
  KB_WGMMA_RS("m64n120k32.f32.e4m3.e4m3", 60, 60, 61, 62, 63, 64, 65, "1, 1")
  KB_WGMMA_RS("m64n128k32.f32.e4m3.e4m3", 64, 64, 65, 66, 67, 68, 69, "1, 1")
  KB_WGMMA_RS("m64n136k32.f32.e4m3.e4m3", 68, 68, 69, 70, 71, 72, 73, "1, 1")
  KB_WGMMA_RS("m64n144k32.f32.e4m3.e4m3", 72, 72, 73, 74, 75, 76, 77, "1, 1")
  KB_WGMMA_RS("m64n152k32.f32.e4m3.e4m3", 76, 76, 77, 78, 79, 80, 81, "1, 1")
  KB_WGMMA_RS("m64n160k32.f32.e4m3.e4m3", 80, 80, 81, 82, 83, 84, 85, "1, 1")
  KB_WGMMA_RS("m64n168k32.f32.e4m3.e4m3", 84, 84, 85, 86, 87, 88, 89, "1, 1")
  KB_WGMMA_RS("m64n176k32.f32.e4m3.e4m3", 88, 88, 89, 90, 91, 92, 93, "1, 1")
  KB_WGMMA_RS("m64n184k32.f32.e4m3.e4m3", 92, 92, 93, 94, 95, 96, 97, "1, 1")
  KB_WGMMA_RS("m64n192k32.f32.e4m3.e4m3", 96, 96, 97, 98, 99, 100, 101, "1, 1")
  KB_WGMMA_RS("m64n200k32.f32.e4m3.e4m3", 100, 100, 101, 102, 103, 104, 105, "1, 1")
  KB_WGMMA_RS("m64n208k32.f32.e4m3.e4m3", 104, 104, 105, 106, 107, 108, 109, "1, 1")
  KB_WGMMA_RS("m64n216k32.f32.e4m3.e4m3", 108, 108, 109, 110, 111, 112, 113, "1, 1")
  KB_WGMMA_RS("m64n224k32.f32.e4m3.e4m3", 112, 112, 113, 114, 115, 116, 117, "1, 1")
  KB_WGMMA_RS("m64n232k32.f32.e4m3.e4m3", 116, 116, 117, 118, 119, 120, 121, "1, 1")
  KB_WGMMA_RS("m64n240k32.f32.e4m3.e4m3", 120, 120, 121, 122, 123, 124, 125, "1, 1")
  KB_WGMMA_RS("m64n248k32.f32.e4m3.e4m3", 124, 124, 125, 126, 127, 128, 129, "1, 1")
  KB_WGMMA_RS("m64n256k32.f32.e4m3.e4m3", 128, 128, 129, 130, 131, 132, 133, "1, 1")
}

template <int kCount, typename T>
KB_DEVICE void wgmma_mma_async_f32_f16_f16(float (&d)[kCount], uint64_t a, uint64_t b,
                                           bool accumulate) {
  static_assert(detail::is_accumulator_count(kCount), "N / 2 accumulators for N = 8, 16, … 256");
  KB_WGMMA_SS("m64n8k16.f32.f16.f16", 4, 4, 5, 6, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n16k16.f32.f16.f16", 8, 8, 9, 10, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n24k16.f32.f16.f16", 12, 12, 13, 14, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n32k16.f32.f16.f16", 16, 16, 17, 18, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n40k16.f32.f16.f16", 20, 20, 21, 22, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n48k16.f32.f16.f16", 24, 24, 25, 26, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n56k16.f32.f16.f16", 28, 28, 29, 30, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n64k16.f32.f16.f16", 32, 32, 33, 34, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n72k16.f32.f16.f16", 36, 36, 37, 38, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n80k16.f32.f16.f16", 40, 40, 41, 42, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n88k16.f32.f16.f16", 44, 44, 45, 46, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n96k16.f32.f16.f16", 48, 48, 49, 50, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n104k16.f32.f16.f16", 52, 52, 53, 54, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n112k16.f32.f16.f16", 56, 56, 57, 58, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n120k16.f32.f16.f16", 60, 60, 61, 62, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n128k16.f32.f16.f16", 64, 64, 65, 66, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n136k16.f32.f16.f16", 68, 68, 69, 70, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n144k16.f32.f16.f16", 72, 72, 73, 74, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n152k16.f32.f16.f16", 76, 76, 77, 78, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n160k16.f32.f16.f16", 80, 80, 81, 82, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n168k16.f32.f16.f16", 84, 84, 85, 86, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n176k16.f32.f16.f16", 88, 88, 89, 90, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n184k16.f32.f16.f16", 92, 92, 93, 94, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n192k16.f32.f16.f16", 96, 96, 97, 98, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n200k16.f32.f16.f16", 100, 100, 101, 102, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n208k16.f32.f16.f16", 104, 104, 105, 106, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n216k16.f32.f16.f16", 108, 108, 109, 110, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n224k16.f32.f16.f16", 112, 112, 113, 114, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n232k16.f32.f16.f16", 116, 116, 117, 118, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n240k16.f32.f16.f16", 120, 120, 121, 122, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n248k16.f32.f16.f16", 124, 124, 125, 126, "1, 1, 0, 0")
  KB_WGMMA_SS("m64n256k16.f32.f16.f16", 128, 128, 129, 130, "1, 1, 0, 0")
}

template <int kCount, typename T>
KB_DEVICE void wgmma_mma_async_f32_f16_f16(float (&d)[kCount], const uint32_t (&a)[4], uint64_t b,
                                           bool accumulate) {
  static_assert(detail::is_accumulator_count(kCount), "N / 2 accumulators for N = 8, 16, … 256");
  KB_WGMMA_RS("m64n8k16.f32.f16.f16", 4, 4, 5, 6, 7, 8, 9, "1, 1, 0")
  KB_WGMMA_RS("m64n16k16.f32.f16.f16", 8, 8, 9, 10, 11, 12, 13, "1, 1, 0")
  KB_WGMMA_RS("m64n24k16.f32.f16.f16", 12, 12, 13, 14, 15, 16, 17, "1, 1, 0")
  KB_WGMMA_RS("m64n32k16.f32.f16.f16", 16, 16, 17, 18, 19, 20, 21, "1, 1, 0")
  KB_WGMMA_RS("m64n40k16.f32.f16.f16", 20, 20, 21, 22, 23, 24, 25, "1, 1, 0")
  KB_WGMMA_RS("m64n48k16.f32.f16.f16", 24, 24, 25, 26, 27, 28, 29, "1, 1, 0")
  KB_WGMMA_RS("m64n56k16.f32.f16.f16", 28, 28, 29, 30, 31, 32, 33, "1, 1, 0")
  KB_WGMMA_RS("m64n64k16.f32.f16.f16", 32, 32, 33, 34, 35, 36, 37, "1, 1, 0")
  KB_WGMMA_RS("m64n72k16.f32.f16.f16", 36, 36, 37, 38, 39, 40, 41, "1, 1, 0")
  KB_WGMMA_RS("m64n80k16.f32.f16.f16", 40, 40, 41, 42, 43, 44, 45, "1, 1, 0")
  KB_WGMMA_RS("m64n88k16.f32.f16.f16", 44, 44, 45, 46, 47, 48, 49, "1, 1, 0")
  KB_WGMMA_RS("m64n96k16.f32.f16.f16", 48, 48, 49, 50, 51, 52, 53, "1, 1, 0")
  KB_WGMMA_RS("m64n104k16.f32.f16.f16", 52, 52, 53, 54, 55, 56, 57, "1, 1, 0")
  KB_WGMMA_RS("m64n112k16.f32.f16.f16", 56, 56, 57, 58, 59, 60, 61, "1, 1, 0")
  KB_WGMMA_RS("m64n120k16.f32.f16.f16", 60, 60, 61, 62, 63, 64, 65, "1, 1, 0")
  KB_WGMMA_RS("m64n128k16.f32.f16.f16", 64, 64, 65, 66, 67, 68, 69, "1, 1, 0")
  KB_WGMMA_RS("m64n136k16.f32.f16.f16", 68, 68, 69, 70, 71, 72, 73, "1, 1, 0")
  KB_WGMMA_RS("m64n144k16.f32.f16.f16", 72, 72, 73, 74, 75, 76, 77, "1, 1, 0")
  KB_WGMMA_RS("m64n152k16.f32.f16.f16", 76, 76, 77, 78, 79, 80, 81, "1, 1, 0")
  KB_WGMMA_RS("m64n160k16.f32.f16.f16", 80, 80, 81, 82, 83, 84, 85, "1, 1, 0")
  KB_WGMMA_RS("m64n168k16.f32.f16.f16", 84, 84, 85, 86, 87, 88, 89, "1, 1, 0")
  KB_WGMMA_RS("m64n176k16.f32.f16.f16", 88, 88, 89, 90, 91, 92, 93, "1, 1, 0")
  KB_WGMMA_RS("m64n184k16.f32.f16.f16", 92, 92, 93, 94, 95, 96, 97, "1, 1, 0")
  KB_WGMMA_RS("m64n192k16.f32.f16.f16", 96, 96, 97, 98, 99, 100, 101, "1, 1, 0")
  KB_WGMMA_RS("m64n200k16.f32.f16.f16", 100, 100, 101, 102, 103, 104, 105, "1, 1, 0")
  KB_WGMMA_RS("m64n208k16.f32.f16.f16", 104, 104, 105, 106, 107, 108, 109, "1, 1, 0")
  KB_WGMMA_RS("m64n216k16.f32.f16.f16", 108, 108, 109, 110, 111, 112, 113, "1, 1, 0")
  KB_WGMMA_RS("m64n224k16.f32.f16.f16", 112, 112, 113, 114, 115, 116, 117, "1, 1, 0")
  KB_WGMMA_RS("m64n232k16.f32.f16.f16", 116, 116, 117, 118, 119, 120, 121, "1, 1, 0")
  KB_WGMMA_RS("m64n240k16.f32.f16.f16", 120, 120, 121, 122, 123, 124, 125, "1, 1, 0")
  KB_WGMMA_RS("m64n248k16.f32.f16.f16", 124, 124, 125, 126, 127, 128, 129, "1, 1, 0")
  KB_WGMMA_RS("m64n256k16.f32.f16.f16", 128, 128, 129, 130, 131, 132, 133, "1, 1, 0")
}

#undef KB_WGMMA_SS
#undef KB_WGMMA_RS

}  // namespace kb::ptx
