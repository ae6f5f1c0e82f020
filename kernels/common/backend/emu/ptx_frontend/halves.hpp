// f16, bf16 and narrower (PTX ISA 9.1, 9.7.4, 9.7.5, 9.7.9): arithmetic in a wider format, rounded
// once.
#pragma once

#include "floats.hpp"

namespace px {

PX_CALLED f32 widened(f16 a) {
  return emu::f32_of_f16(a.bits);
}
PX f32 widened(bf16 a) {
  return canonical(as<f32>(b32{a.bits} << 16));
}

PX f64 widened_twice(f16 a) {
  return widened(a);
}

// cvt of bf16 keeps a NaN's bits.
PX f32 extended(bf16 a) {
  return as<f32>(b32{a.bits} << 16);
}

PX_CALLED f16 narrowed_f16_rn(f32 a) {
  return {emu::f16_bits(a)};
}
PX_CALLED bf16 narrowed_bf16_rn(f32 a) {
  return {emu::bf16_bits(a)};
}
// Towards zero: one less where rounding to nearest has gone away from it, infinity included.
PX_CALLED f16 narrowed_f16_rz(f32 a) {
  const f16 nearest = narrowed_f16_rn(a);
  const bool away = std::fabs(widened(nearest)) > std::fabs(a);
  return {static_cast<b16>(nearest.bits - away)};
}
PX_CALLED bf16 narrowed_bf16_rz(f32 a) {
  return {std::isnan(a) ? b16{0x7fff}
                        : static_cast<b16>(as<b32>(__builtin_bit_cast(b32, a)) >> 16)};
}

// From one half to the other.
PX bf16 bf16_of_f16_rn(f16 a) {
  return narrowed_bf16_rn(widened(a));
}
PX bf16 bf16_of_f16_rz(f16 a) {
  return narrowed_bf16_rz(widened(a));
}
PX f16 f16_of_bf16_rn(bf16 a) {
  return narrowed_f16_rn(widened(a));
}
PX f16 f16_of_bf16_rz(bf16 a) {
  return narrowed_f16_rz(widened(a));
}

// Packed: the first operand is the upper half.
PX_CALLED b32 pack_f16x2_rn(f32 a, f32 b) {
  return joined<b32>(narrowed_f16_rn(b).bits, narrowed_f16_rn(a).bits);
}
PX_CALLED b32 pack_bf16x2_rn(f32 a, f32 b) {
  return joined<b32>(narrowed_bf16_rn(b).bits, narrowed_bf16_rn(a).bits);
}
PX_CALLED b32 pack_f16x2_rz(f32 a, f32 b) {
  return joined<b32>(narrowed_f16_rz(b).bits, narrowed_f16_rz(a).bits);
}
PX_CALLED b32 pack_bf16x2_rz(f32 a, f32 b) {
  return joined<b32>(narrowed_bf16_rz(b).bits, narrowed_bf16_rz(a).bits);
}

namespace detail {

PX f16 narrowed(f32 a, f16) {
  return narrowed_f16_rn(a);
}
PX bf16 narrowed(f32 a, bf16) {
  return narrowed_bf16_rn(a);
}

// Rounded to odd: rounding the result once more, to fewer than half its bits, is as rounding the
// exact value once.
PX f32 odd(f64 a) {
  const auto nearest = static_cast<f32>(a);
  if (nearest == a || std::isnan(a) || std::isinf(nearest)) return nearest;
  const auto bits = __builtin_bit_cast(b32, nearest);
  if (bits & 1) return nearest;
  return as<f32>(std::fabs(static_cast<f64>(nearest)) > std::fabs(a) ? bits - 1 : bits + 1);
}
PX f64 odd_sum(f64 a, f64 b) {
  const f64 sum = a + b;
  if (!std::isfinite(sum)) return sum;
  const f64 part = sum - a;
  const f64 error = (a - (sum - part)) + (b - part);
  const auto bits = __builtin_bit_cast(b64, sum);
  if (error == 0 || bits & 1) return sum;
  return as<f64>((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

// Each half of a pair.
template <typename Pair>
using Half = std::conditional_t<std::is_same_v<Pair, f16x2>, f16, bf16>;
template <typename Pair, typename Operation, typename... Pairs>
PX Pair each(Operation operation, Pairs... pairs) {
  using H = Half<Pair>;
  return {joined<b32>(operation(H{static_cast<b16>(pairs.bits)}...).bits,
                      operation(H{static_cast<b16>(pairs.bits >> 16)}...).bits)};
}
template <typename T>
inline constexpr bool kPair = sizeof(T) == 4;

}  // namespace detail

// The least normal number of f16 and above; .ftz and .sat are of f16 only.
template <Flags how, typename H>
PX f32 half_in(H a) {
  const f32 wide = widened(a);
  if constexpr (how.ftz) {
    if (std::fabs(wide) < 0x1p-14f) return std::copysign(0.0f, wide);
  }
  return wide;
}
// A result that is rounded once more. What rounds to less than the least normal number, had
// exponents no limit, is flushed, as of f32.
template <Flags how, typename H>
PX H half_out(f32 a, H type) {
  if constexpr (how.ftz) {
    if (std::fabs(a) < 0x1.ffep-15f) a = std::copysign(0.0f, a);
  }
  if constexpr (how.sat) a = saturate(a);
  // Assumption: -0 becomes +0.
  if constexpr (how.relu) a = a <= 0 ? 0.0f : a;
  return detail::narrowed(a, type);
}

// In fp32 sums and products of halves lose nothing that a second rounding could see.
#define KB_PTX_HALF(name, expression)                                                      \
  template <Flags how, typename T>                                                         \
  PX_CALLED T name##_half(T a, T b) {                                                      \
    if constexpr (detail::kPair<T>) {                                                      \
      return detail::each<T>([](auto x, auto y) { return name##_half<how>(x, y); }, a, b); \
    } else {                                                                               \
      const f32 x = half_in<how>(a), y = half_in<how>(b);                                  \
      return half_out<how>(expression, T{});                                               \
    }                                                                                      \
  }
KB_PTX_HALF(add, x + y)
KB_PTX_HALF(sub, x - y)
KB_PTX_HALF(mul, x* y)
KB_PTX_HALF(min, min<how>(x, y))
KB_PTX_HALF(max, max<how>(x, y))
#undef KB_PTX_HALF

// .xorsign.abs: of the magnitudes, with the exclusive or of the signs, a NaN's included.
#define KB_PTX_HALF(name)                                                                          \
  template <Flags how, typename T>                                                                 \
  PX_CALLED T name##_xorsign_half(T a, T b) {                                                      \
    if constexpr (detail::kPair<T>) {                                                              \
      return detail::each<T>([](auto x, auto y) { return name##_xorsign_half<how>(x, y); }, a, b); \
    } else {                                                                                       \
      const auto sign = static_cast<b16>((a.bits ^ b.bits) & 0x8000u);                             \
      const T x{static_cast<b16>(a.bits & 0x7fffu)}, y{static_cast<b16>(b.bits & 0x7fffu)};        \
      const T size = name##_half<how>(x, y);                                                       \
      return {std::isnan(widened(size)) ? size.bits : static_cast<b16>(size.bits | sign)};         \
    }                                                                                              \
  }
KB_PTX_HALF(min)
KB_PTX_HALF(max)
#undef KB_PTX_HALF

template <Flags how, typename T>
PX_CALLED T fma_half(T a, T b, T c) {
  if constexpr (detail::kPair<T>) {
    return detail::each<T>([](auto x, auto y, auto z) { return fma_half<how>(x, y, z); }, a, b, c);
  } else {
    const f64 product = f64{half_in<how>(a)} * half_in<how>(b);
    const f64 sum = detail::odd_sum(product, half_in<how>(c));
    return half_out<how>(canonical(detail::odd(sum)), T{});
  }
}
// .approx: PTX bounds the error; rounded from more digits it is half a unit in the last place.
#define KB_PTX_HALF(name)                                                    \
  template <Flags how, typename T>                                           \
  PX_CALLED T name##_half(T a) {                                             \
    if constexpr (detail::kPair<T>) {                                        \
      return detail::each<T>([](auto x) { return name##_half<how>(x); }, a); \
    } else {                                                                 \
      const f64 exact = std::name(static_cast<f64>(half_in<how>(a)));        \
      return half_out<how>(canonical(detail::odd(exact)), T{});              \
    }                                                                        \
  }
KB_PTX_HALF(exp2)
KB_PTX_HALF(tanh)
#undef KB_PTX_HALF

// cvt from f64 and integers, and to integers.
template <typename H, typename T>
PX_CALLED H half_of(T a) {
  return detail::narrowed(detail::odd(static_cast<f64>(a)), H{});
}
template <typename To, Flags how, typename H>
PX To whole_of_half(H a) {
  return whole<To, how>(half_in<how>(a));
}
template <Flags how, typename H>
PX_CALLED H integral_half(H a) {
  return half_out<how>(integral<how>(half_in<how>(a)), H{});
}

// f32 arithmetic with operands of 16 bits, which are widened first.
template <Flags how, typename T>
PX f32 add_mixed(T a, f32 b) {
  return add<how>(widened(a), b);
}
template <Flags how, typename T>
PX f32 sub_mixed(T a, f32 b) {
  return sub<how>(widened(a), b);
}
template <Flags how, typename T>
PX f32 fma_mixed(T a, T b, f32 c) {
  return fma<how>(widened(a), widened(b), c);
}

// Signs are bits, but for a NaN, which becomes the canonical one.
template <Flags how, typename T>
PX_CALLED T neg_half(T a) {
  if constexpr (detail::kPair<T>) {
    return detail::each<T>([](auto x) { return neg_half<how>(x); }, a);
  } else {
    if constexpr (how.ftz) return half_out<how>(-half_in<how>(a), a);
    return {std::isnan(widened(a)) ? b16{0x7fff} : static_cast<b16>(a.bits ^ 0x8000u)};
  }
}
template <Flags how, typename T>
PX_CALLED T abs_half(T a) {
  if constexpr (detail::kPair<T>) {
    return detail::each<T>([](auto x) { return abs_half<how>(x); }, a);
  } else {
    if constexpr (how.ftz) return half_out<how>(std::fabs(half_in<how>(a)), a);
    return {std::isnan(widened(a)) ? b16{0x7fff} : static_cast<b16>(a.bits & 0x7fffu)};
  }
}

// setp of halves.
#define KB_PTX_COMPARE(name)                                    \
  template <typename T>                                         \
    requires(std::is_same_v<T, f16> || std::is_same_v<T, bf16>) \
  PX bool is_##name(T a, T b) {                                 \
    return is_##name(widened(a), widened(b));                   \
  }
KB_PTX_COMPARE(eq)
KB_PTX_COMPARE(ne)
KB_PTX_COMPARE(lt)
KB_PTX_COMPARE(le)
KB_PTX_COMPARE(gt)
KB_PTX_COMPARE(ge)
KB_PTX_COMPARE(equ)
KB_PTX_COMPARE(neu)
KB_PTX_COMPARE(ltu)
KB_PTX_COMPARE(leu)
KB_PTX_COMPARE(gtu)
KB_PTX_COMPARE(geu)
KB_PTX_COMPARE(num)
KB_PTX_COMPARE(nan)
#undef KB_PTX_COMPARE

// set of pairs: `one` in each half for which the relation holds.
template <typename T, typename Test>
PX b32 set_halves(T a, T b, b32 one, Test test) {
  using H = detail::Half<T>;
  const auto half = [&](u32 shift) {
    return test(H{static_cast<b16>(a.bits >> shift)}, H{static_cast<b16>(b.bits >> shift)}) ? one
                                                                                            : 0;
  };
  return half(16) << 16 | half(0);
}

}  // namespace px
