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

// cvt of bf16 keeps a NaN's bits, but with .sat and .ftz (as an H200 does).
PX f32 extended(bf16 a) {
  return as<f32>(b32{a.bits} << 16);
}
PX f32 extended(f16 a) {
  return widened(a);
}

PX_CALLED f16 narrowed_f16_rn(f32 a) {
  return {emu::f16_bits(a)};
}
PX_CALLED bf16 narrowed_bf16_rn(f32 a) {
  return {emu::bf16_bits(a)};
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

// Integers: what f64 has no place for is one bit that says that there is more.
template <typename T>
PX f64 odd_integer(T a) {
  if constexpr (sizeof(T) < 8) return a;
  u64 size = a < 0 ? 0 - static_cast<u64>(a) : static_cast<u64>(a);
  if (size >> 53) size = (size & ~u64{0x7ff}) | u64{(size & 0x7ff) != 0} << 11;
  return a < 0 ? -static_cast<f64>(size) : static_cast<f64>(size);
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

// cvt between halves and other types. .relu: what is negative becomes 0; a NaN stays.
template <bool relu>
PX f32 without_negative(f32 a) {
  return relu && (a < 0 || (a == 0 && std::signbit(a))) ? 0 : a;
}
// In another mode than to nearest: the neighbour where that has gone the wrong way, infinity
// included.
template <Round round, typename H>
PX_CALLED H half_in_mode(f64 a) {
  const H nearest = detail::narrowed(canonical(detail::odd(a)), H{});
  const f64 got = widened(nearest);
  if (round == Round::kNearest || std::isnan(a) || got == a) return nearest;
  const bool outward = round == (std::signbit(a) ? Round::kDown : Round::kUp);
  if (outward && std::fabs(got) < std::fabs(a)) return {static_cast<b16>(nearest.bits + 1)};
  if (!outward && std::fabs(got) > std::fabs(a)) return {static_cast<b16>(nearest.bits - 1)};
  return nearest;
}
// An f64's NaN keeps its sign and upper bits (as on an H200).
template <typename H>
PX H half_nan(f64 a) {
  constexpr b32 kFraction = std::is_same_v<H, f16> ? 10 : 7;
  const auto bits = __builtin_bit_cast(b64, a);
  const b64 upper = bits >> (52 - kFraction) | b64{1} << (kFraction - 1);
  return {static_cast<b16>(bits >> 63 << 15 | (upper & 0x7fff))};
}
template <typename H, Flags how, typename T>
PX_CALLED H half_of(T a) {
  H found;
  if constexpr (std::is_same_v<T, f64> && !how.sat) {
    if (std::isnan(a)) return half_nan<H>(a);
  }
  if constexpr (std::is_same_v<T, f32> && how.round == Round::kNearest) {
    f32 given = without_negative<how.relu>(in<how>(a));
    if constexpr (how.sat) given = saturate(given);
    found = detail::narrowed(given, H{});
  } else if constexpr (std::is_integral_v<T>) {
    found = half_in_mode<how.round, H>(detail::odd_integer(a));
  } else if constexpr (sizeof(T) == 2) {
    found = half_in_mode<how.round, H>(widened(a));
  } else {
    T given = a;
    if constexpr (std::is_same_v<T, f32>) given = without_negative<how.relu>(in<how>(a));
    if constexpr (how.sat) given = saturate(given);
    found = half_in_mode<how.round, H>(given);
  }
  if constexpr (how.satfinite) {
    if (std::isinf(widened(found))) --found.bits;
  }
  return found;
}
// Two of them: the first operand is the upper one.
template <typename H, Flags how>
PX_CALLED b32 pack_halves(f32 a, f32 b) {
  return joined<b32>(half_of<H, how>(b).bits, half_of<H, how>(a).bits);
}
template <typename To, Flags how, typename H>
PX To wide_of(H a) {
  if constexpr (how.sat) return saturate(in<how>(static_cast<To>(widened(a))));
  if constexpr (how.ftz) return in<how>(static_cast<To>(widened(a)));
  return in<how>(static_cast<To>(extended(a)));
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

// setp and set of halves.
PX f16 flushed(f16 a) {
  return {static_cast<b16>(a.bits & 0x7c00u ? a.bits : a.bits & 0x8000u)};
}
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

// What set gives: 1.0, or every bit of an integer.
template <typename T>
PX T truth(bool found) {
  if constexpr (std::is_same_v<T, f32>) {
    return found ? 1.0f : 0.0f;
  } else if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>) {
    return detail::narrowed(found ? 1.0f : 0.0f, T{});
  } else {
    return found ? static_cast<T>(~T{0}) : T{0};
  }
}
template <typename To, Flags how, typename Test, typename Pair>
PX To truths(Test test, Pair a, Pair b) {
  using H = detail::Half<Pair>;
  const auto bits = [&](int shift) -> b16 {
    H x{static_cast<b16>(a.bits >> shift)}, y{static_cast<b16>(b.bits >> shift)};
    if constexpr (how.ftz) x = flushed(x), y = flushed(y);
    if constexpr (std::is_integral_v<To>) return truth<b16>(test(x, y));
    return truth<H>(test(x, y)).bits;
  };
  return {joined<b32>(bits(0), bits(16))};
}

}  // namespace px
