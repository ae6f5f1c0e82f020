#pragma once

#include "operands.inl"
#include "text.inl"

namespace kb::ptx {

template <int kCtas, typename T>
KB_DEVICE void tcgen05_alloc(CtaGroup<kCtas>, uint32_t* address, uint32_t columns) {
  // clang-format off
  asm volatile("tcgen05.alloc.cta_group::%2.sync.aligned.shared::cta.b32 [%0], %1;"
               :: "r"(smem_address(address)), "r"(columns), "n"(kCtas) : "memory");
  // clang-format on
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_dealloc(CtaGroup<kCtas>, uint32_t tmem, uint32_t columns) {
  // clang-format off
  asm volatile("tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;"
               :: "r"(tmem), "r"(columns), "n"(kCtas) : "memory");
  // clang-format on
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_relinquish_alloc_permit(CtaGroup<kCtas>) {
  // clang-format off
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::%0.sync.aligned;"
               :: "n"(kCtas) : "memory");
  // clang-format on
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_cp_32x128b_warpx4(CtaGroup<kCtas>, uint32_t tmem, uint64_t source) {
  // clang-format off
  asm volatile("tcgen05.cp.cta_group::%2.32x128b.warpx4 [%0], %1;"
               :: "r"(tmem), "l"(source), "n"(kCtas) : "memory");
  // clang-format on
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_mma_mxf4nvf4_block_scale_4x(CtaGroup<kCtas>, uint32_t d, uint64_t a,
                                                   uint64_t b, uint32_t instruction,
                                                   uint32_t scales_a, uint32_t scales_b,
                                                   bool accumulate) {
  // clang-format off
  asm volatile("{.reg .pred p; setp.ne.b32 p, %6, 0; "
               "tcgen05.mma.cta_group::%7.kind::mxf4nvf4.block_scale.scale_vec::4X "
               "[%0], %1, %2, %3, [%4], [%5], p;}"
               :: "r"(d), "l"(a), "l"(b), "r"(instruction), "r"(scales_a), "r"(scales_b),
                  "r"(static_cast<uint32_t>(accumulate)), "n"(kCtas) : "memory");
  // clang-format on
}

template <int kCtas, typename Collector, typename T>
KB_DEVICE void tcgen05_mma_mxf4nvf4_block_scale_4x(CtaGroup<kCtas>, Collector, uint32_t d,
                                                   uint64_t a, uint64_t b, uint32_t instruction,
                                                   uint32_t scales_a, uint32_t scales_b,
                                                   bool accumulate) {
  // clang-format off
  asm volatile("{.reg .pred p; setp.ne.b32 p, %6, 0; "
               "tcgen05.mma.cta_group::%7.kind::mxf4nvf4.block_scale.scale_vec::4X"
               ".collector::a::%8 [%0], %1, %2, %3, [%4], [%5], p;}"
               :: "r"(d), "l"(a), "l"(b), "r"(instruction), "r"(scales_a), "r"(scales_b),
                  "r"(static_cast<uint32_t>(accumulate)), "n"(kCtas),
                  "C"(detail::Text<Collector>::kValue) : "memory");
  // clang-format on
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_commit(CtaGroup<kCtas>, Mbarrier* bar) {
  // clang-format off
  asm volatile("tcgen05.commit.cta_group::%1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
               :: "r"(smem_address(bar)), "n"(kCtas) : "memory");
  // clang-format on
}

template <int kCtas, typename T>
KB_DEVICE void tcgen05_commit(CtaGroup<kCtas>, Mbarrier* bar, ClusterMask mask) {
  // clang-format off
  asm volatile("tcgen05.commit.cta_group::%2.mbarrier::arrive::one.shared::cluster"
               ".multicast::cluster.b64 [%0], %1;"
               :: "r"(smem_address(bar)), "h"(mask.bits), "n"(kCtas) : "memory");
  // clang-format on
}

template <typename T>
KB_DEVICE void tcgen05_fence_before_thread_sync() {
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}

template <typename T>
KB_DEVICE void tcgen05_fence_after_thread_sync() {
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

// One case of a load or store: `x` repetitions, `n` registers.
// clang-format off
#define KB_TCGEN05_LD(shape, x, n)                                                       \
  if constexpr (kCount == n) {                                                           \
    asm volatile("tcgen05.ld.sync.aligned." shape ".x" #x ".b32 {" KB_NUMBERS_##n        \
                 "}, [%" #n "];"                                                         \
                 : KB_OPERANDS_##n("=r", out) : "r"(tmem) : "memory");                   \
  }
#define KB_TCGEN05_ST(shape, x, n)                                                       \
  if constexpr (kCount == n) {                                                           \
    asm volatile("tcgen05.st.sync.aligned." shape ".x" #x ".b32 [%" #n "], {"            \
                 KB_NUMBERS_##n "};"                                                     \
                 :: KB_OPERANDS_##n("r", in), "r"(tmem) : "memory");                     \
  }
// clang-format on

namespace detail {

KB_HOST_DEVICE constexpr bool is_power_of_two(int count) {
  return count > 0 && (count & (count - 1)) == 0;
}

}  // namespace detail

template <int kCount, typename T>
KB_DEVICE void tcgen05_ld_32x32b(uint32_t (&out)[kCount], uint32_t tmem) {
  static_assert(detail::is_power_of_two(kCount) && kCount <= 128, "1, 2, 4, … 128 registers");
  KB_TCGEN05_LD("32x32b", 1, 1)
  KB_TCGEN05_LD("32x32b", 2, 2)
  KB_TCGEN05_LD("32x32b", 4, 4)
  KB_TCGEN05_LD("32x32b", 8, 8)
  KB_TCGEN05_LD("32x32b", 16, 16)
  KB_TCGEN05_LD("32x32b", 32, 32)
  KB_TCGEN05_LD("32x32b", 64, 64)
  KB_TCGEN05_LD("32x32b", 128, 128)
}

template <int kCount, typename T>
KB_DEVICE void tcgen05_ld_16x64b(uint32_t (&out)[kCount], uint32_t tmem) {
  static_assert(detail::is_power_of_two(kCount) && kCount <= 128, "1, 2, 4, … 128 registers");
  KB_TCGEN05_LD("16x64b", 1, 1)
  KB_TCGEN05_LD("16x64b", 2, 2)
  KB_TCGEN05_LD("16x64b", 4, 4)
  KB_TCGEN05_LD("16x64b", 8, 8)
  KB_TCGEN05_LD("16x64b", 16, 16)
  KB_TCGEN05_LD("16x64b", 32, 32)
  KB_TCGEN05_LD("16x64b", 64, 64)
  KB_TCGEN05_LD("16x64b", 128, 128)
}

template <int kCount, typename T>
KB_DEVICE void tcgen05_ld_16x256b(uint32_t (&out)[kCount], uint32_t tmem) {
  static_assert(detail::is_power_of_two(kCount) && kCount >= 4 && kCount <= 128,
                "4, 8, … 128 registers");
  KB_TCGEN05_LD("16x256b", 1, 4)
  KB_TCGEN05_LD("16x256b", 2, 8)
  KB_TCGEN05_LD("16x256b", 4, 16)
  KB_TCGEN05_LD("16x256b", 8, 32)
  KB_TCGEN05_LD("16x256b", 16, 64)
  KB_TCGEN05_LD("16x256b", 32, 128)
}

template <typename T>
KB_DEVICE void tcgen05_wait_ld() {
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
}

// `n` registers as operands that the text does not name: the compiler keeps their uses in order.
// clang-format off
#define KB_TCGEN05_WAIT_LD(n)                                                            \
  if constexpr (kCount == n) {                                                           \
    asm volatile("tcgen05.wait::ld.sync.aligned;"                                        \
                 : KB_OPERANDS_##n("+r", values) :: "memory");                           \
  }
// clang-format on

template <int kCount, typename T>
KB_DEVICE void tcgen05_wait_ld(uint32_t (&values)[kCount]) {
  static_assert(detail::is_power_of_two(kCount) && kCount <= 128, "1, 2, 4, … 128 registers");
  KB_TCGEN05_WAIT_LD(1)
  KB_TCGEN05_WAIT_LD(2)
  KB_TCGEN05_WAIT_LD(4)
  KB_TCGEN05_WAIT_LD(8)
  KB_TCGEN05_WAIT_LD(16)
  KB_TCGEN05_WAIT_LD(32)
  KB_TCGEN05_WAIT_LD(64)
  KB_TCGEN05_WAIT_LD(128)
}

template <int kCount, typename T>
KB_DEVICE void tcgen05_st_32x32b(uint32_t tmem, const uint32_t (&in)[kCount]) {
  static_assert(detail::is_power_of_two(kCount) && kCount <= 128, "1, 2, 4, … 128 registers");
  KB_TCGEN05_ST("32x32b", 1, 1)
  KB_TCGEN05_ST("32x32b", 2, 2)
  KB_TCGEN05_ST("32x32b", 4, 4)
  KB_TCGEN05_ST("32x32b", 8, 8)
  KB_TCGEN05_ST("32x32b", 16, 16)
  KB_TCGEN05_ST("32x32b", 32, 32)
  KB_TCGEN05_ST("32x32b", 64, 64)
  KB_TCGEN05_ST("32x32b", 128, 128)
}

template <typename T>
KB_DEVICE void tcgen05_wait_st() {
  asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
}

#undef KB_TCGEN05_LD
#undef KB_TCGEN05_ST
#undef KB_TCGEN05_WAIT_LD

}  // namespace kb::ptx
