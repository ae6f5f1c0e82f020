// Floating-point arithmetic and comparisons (PTX ISA 9.1, 9.7.3 to 9.7.6). A NaN of f32 and
// narrower types is the canonical one, as on GPUs.
#pragma once

#include <cfenv>
#include <cmath>

#include "integers.hpp"

namespace px {

enum class Round { kNearest, kZero, kDown, kUp };
// An instruction's modifiers.
struct Flags {
  Round round = Round::kNearest;
  bool ftz = false, sat = false, nan = false, relu = false, xorsign = false, satfinite = false;
};

namespace detail {

consteval bool equal(const char* text, size_t length, const char* word) {
  size_t i = 0;
  for (; i < length && word[i] != 0; ++i) {
    if (text[i] != word[i]) return false;
  }
  return i == length && word[i] == 0;
}

consteval void take(Flags& flags, const char* text, size_t length) {
  if (equal(text, length, "ftz")) flags.ftz = true;
  if (equal(text, length, "sat")) flags.sat = true;
  if (equal(text, length, "NaN")) flags.nan = true;
  if (equal(text, length, "relu")) flags.relu = true;
  if (equal(text, length, "xorsign")) flags.xorsign = true;
  if (equal(text, length, "satfinite")) flags.satfinite = true;
  if (equal(text, length, "rz") || equal(text, length, "rzi")) flags.round = Round::kZero;
  if (equal(text, length, "rm") || equal(text, length, "rmi")) flags.round = Round::kDown;
  if (equal(text, length, "rp") || equal(text, length, "rpi")) flags.round = Round::kUp;
}

}  // namespace detail

// "rz ftz sat" → Flags.
consteval Flags flags(const char* words) {
  Flags found;
  const char* begin = words;
  for (const char* at = words;; ++at) {
    if (*at != ' ' && *at != 0) continue;
    detail::take(found, begin, static_cast<size_t>(at - begin));
    if (*at == 0) return found;
    begin = at + 1;
  }
}

// Without a branch, as canonical is.
PX f32 flushed(f32 a) {
  const auto bits = __builtin_bit_cast(b32, a);
  return as<f32>(bits & (b32{(bits & 0x7f800000u) == 0} * 0x7fffffffu ^ 0xffffffffu));
}
PX f64 flushed(f64 a) {
  return a;
}
PX f32 canonical(f32 a) {
  const b32 all = 0u - b32{a != a};
  return as<f32>((__builtin_bit_cast(b32, a) | all) ^ all << 31);
}
PX f64 canonical(f64 a) {
  return a;
}
template <typename T>
PX T saturate(T a) {
  return a > 0 ? (a < 1 ? a : T{1}) : T{0};  // NaN becomes 0
}
template <Flags how, typename T>
PX T in(T a) {
  return how.ftz ? flushed(a) : a;
}
template <Flags how, typename T>
PX T out(T a) {
  a = in<how>(a);
  return how.sat ? saturate(a) : canonical(a);
}

// An operation in another rounding mode than to nearest; the compiler must not move it.
template <Round round, typename Result, typename Operation, typename... T>
__attribute__((noinline)) Result in_mode(Operation operation, T... operands) {
  constexpr int kMode = round == Round::kZero   ? FE_TOWARDZERO
                        : round == Round::kDown ? FE_DOWNWARD
                                                : FE_UPWARD;
  std::fesetround(kMode);
  (([&] { asm volatile("" : "+m"(operands)); })(), ...);
  Result result = operation(operands...);
  asm volatile("" : "+m"(result));
  std::fesetround(FE_TONEAREST);
  return result;
}
template <Round round, typename Result, typename Operation, typename... T>
PX Result rounded(Operation operation, T... operands) {
  if constexpr (round == Round::kNearest) {
    return operation(operands...);
  } else {
    return in_mode<round, Result>(operation, operands...);
  }
}

template <Flags how, typename T>
PX_CALLED T add(T a, T b) {
  const auto sum = [](T x, T y) { return x + y; };
  return out<how>(rounded<how.round, T>(sum, in<how>(a), in<how>(b)));
}
template <Flags how, typename T>
PX_CALLED T sub(T a, T b) {
  const auto difference = [](T x, T y) { return x - y; };
  return out<how>(rounded<how.round, T>(difference, in<how>(a), in<how>(b)));
}
// A product plus c that came out as the least normal number, but is less where the exponent has no
// limit: an H200 flushes it (seen of mul; fma is taken to do the same).
template <Flags how>
PX_CALLED bool below_normal(f32 result, f32 a, f32 b, f32 c) {
  if (std::fabs(result) != std::numeric_limits<f32>::min()) return false;
  const auto sum = [](f32 x, f32 y, f32 z) { return std::fma(x, y, z); };
  (std::fabs(a) < std::fabs(b) ? a : b) *= 0x1p60f;
  return std::fabs(rounded<how.round, f32>(sum, a, b, c * 0x1p60f)) < 0x1p-66f;
}
template <Flags how, typename T>
PX_CALLED T mul(T a, T b) {
  const auto product = [](T x, T y) { return x * y; };
  a = in<how>(a);
  b = in<how>(b);
  T result = rounded<how.round, T>(product, a, b);
  if constexpr (how.ftz) {
    if (below_normal<how>(result, a, b, 0)) result = std::copysign(T{0}, result);
  }
  return out<how>(result);
}
template <Flags how, typename T>
PX_CALLED T called_fma(T a, T b, T c) {
  const auto sum = [](T x, T y, T z) { return std::fma(x, y, z); };
  a = in<how>(a);
  b = in<how>(b);
  c = in<how>(c);
  T result = rounded<how.round, T>(sum, a, b, c);
  if constexpr (how.ftz) {
    if (below_normal<how>(result, a, b, c)) result = std::copysign(T{0}, result);
  }
  return out<how>(result);
}
template <Flags how, typename T>
PX T fma(T a, T b, T c) {
#ifdef __FMA__
  // A call would take all registers out of what products consist of.
  if constexpr (how.round == Round::kNearest && !how.ftz && !how.sat) {
    return canonical(std::fma(a, b, c));
  }
#endif
  return called_fma<how>(a, b, c);
}
// Pairs, each half by itself.
template <Flags how>
PX f32x2 add(f32x2 a, f32x2 b) {
  return {add<how>(a.low, b.low), add<how>(a.high, b.high)};
}
template <Flags how>
PX f32x2 sub(f32x2 a, f32x2 b) {
  return {sub<how>(a.low, b.low), sub<how>(a.high, b.high)};
}
template <Flags how>
PX f32x2 mul(f32x2 a, f32x2 b) {
  return {mul<how>(a.low, b.low), mul<how>(a.high, b.high)};
}
template <Flags how>
PX f32x2 fma(f32x2 a, f32x2 b, f32x2 c) {
  return {fma<how>(a.low, b.low, c.low), fma<how>(a.high, b.high, c.high)};
}
template <Flags how, typename T>
PX_CALLED T div(T a, T b) {
  const auto quotient = [](T x, T y) { return x / y; };
  a = in<how>(a);
  b = in<how>(b);
  const T result = rounded<how.round, T>(quotient, a, b);
  if constexpr (how.ftz) {
    // As of products; see below_normal.
    const bool least = std::fabs(result) == std::numeric_limits<T>::min();
    if (least && std::fabs(rounded<how.round, T>(quotient, a * 0x1p60f, b)) < 0x1p-66f) {
      return std::copysign(T{0}, result);
    }
  }
  return out<how>(result);
}
// PTX: 9.7.3 div.approx: a times 1/b, which is 0 for a b beyond 2^126.
template <Flags how>
PX_CALLED f32 div_approx(f32 a, f32 b) {
  const f32 x = in<how>(a), y = in<how>(b);
  const bool beyond = std::fabs(y) > 0x1p126f && std::isfinite(y);
  return out<how>(beyond ? x * std::copysign(0.0f, y) : x / y);
}
template <Flags how, typename T>
PX_CALLED T rcp(T a) {
  return div<how>(T{1}, a);
}
template <Flags how, typename T>
PX_CALLED T sqrt(T a) {
  const auto root = [](T x) { return std::sqrt(x); };
  return out<how>(rounded<how.round, T>(root, in<how>(a)));
}
template <Flags how>
PX_CALLED f32 rsqrt(f32 a) {
  return out<how>(1.0f / std::sqrt(in<how>(a)));
}
template <Flags how>
PX_CALLED f32 ex2(f32 a) {
  return out<how>(std::exp2(in<how>(a)));
}
template <Flags how>
PX_CALLED f32 lg2(f32 a) {
  return out<how>(std::log2(in<how>(a)));
}
template <Flags how>
PX_CALLED f32 sin(f32 a) {
  return out<how>(std::sin(in<how>(a)));
}
template <Flags how>
PX_CALLED f32 cos(f32 a) {
  return out<how>(std::cos(in<how>(a)));
}
template <Flags how>
PX_CALLED f32 tanh(f32 a) {
  return out<how>(std::tanh(in<how>(a)));
}
// A NaN of f32 becomes the canonical one; of f64 it keeps its sign when negated, as on an H200.
template <Flags how, typename T>
PX_CALLED T neg(T a) {
  return std::isnan(a) ? canonical(a) : -in<how>(a);
}
template <Flags how, typename T>
PX_CALLED T abs(T a) {
  return canonical(std::fabs(in<how>(a)));
}
// The sign of the first operand.
template <typename T>
PX T copysign(T a, T b) {
  return std::copysign(b, a);
}
// -0 is less than +0. One NaN gives the other operand, unless .NaN.
template <Flags how, typename T>
PX_CALLED T min(T a, T b) {
  a = in<how>(a);
  b = in<how>(b);
  if (std::isnan(a) || std::isnan(b)) {
    if (how.nan || (std::isnan(a) && std::isnan(b))) return canonical(a + b);
    return std::isnan(a) ? b : a;
  }
  return a < b || (a == b && std::signbit(a)) ? a : b;
}
template <Flags how, typename T>
PX_CALLED T max(T a, T b) {
  a = in<how>(a);
  b = in<how>(b);
  if (std::isnan(a) || std::isnan(b)) {
    if (how.nan || (std::isnan(a) && std::isnan(b))) return canonical(a + b);
    return std::isnan(a) ? b : a;
  }
  return a > b || (a == b && !std::signbit(a)) ? a : b;
}

// .xorsign.abs: of the magnitudes, with the sign that the product has.
template <Flags how, typename T>
PX_CALLED T min_xorsign(T a, T b) {
  const T size = min<how>(std::fabs(a), std::fabs(b));
  return std::isnan(size) ? size
                          : std::copysign(size, std::signbit(a) != std::signbit(b) ? T{-1} : T{1});
}
template <Flags how, typename T>
PX_CALLED T max_xorsign(T a, T b) {
  const T size = max<how>(std::fabs(a), std::fabs(b));
  return std::isnan(size) ? size
                          : std::copysign(size, std::signbit(a) != std::signbit(b) ? T{-1} : T{1});
}

// testp.
template <typename T>
PX bool testp_finite(T a) {
  return std::isfinite(a);
}
template <typename T>
PX bool testp_infinite(T a) {
  return std::isinf(a);
}
template <typename T>
PX bool testp_number(T a) {
  return !std::isnan(a);
}
template <typename T>
PX bool testp_notanumber(T a) {
  return std::isnan(a);
}
template <typename T>
PX bool testp_normal(T a) {
  return std::isnormal(a) || a == 0;
}
template <typename T>
PX bool testp_subnormal(T a) {
  return std::fpclassify(a) == FP_SUBNORMAL;
}

// setp: ordered relations are false with a NaN, …u ones true. Without a branch.
#define KB_PTX_COMPARE(name, expression) \
  template <typename T>                  \
    requires std::is_floating_point_v<T> \
  PX bool is_##name(T a, T b) {          \
    return expression;                   \
  }
KB_PTX_COMPARE(eq, a == b)
KB_PTX_COMPARE(ne, (a < b) | (a > b))
KB_PTX_COMPARE(lt, a < b)
KB_PTX_COMPARE(le, a <= b)
KB_PTX_COMPARE(gt, a > b)
KB_PTX_COMPARE(ge, a >= b)
KB_PTX_COMPARE(equ, !((a < b) | (a > b)))
KB_PTX_COMPARE(neu, a != b)
KB_PTX_COMPARE(ltu, !(a >= b))
KB_PTX_COMPARE(leu, !(a > b))
KB_PTX_COMPARE(gtu, !(a <= b))
KB_PTX_COMPARE(geu, !(a < b))
KB_PTX_COMPARE(num, (a == a) & (b == b))
KB_PTX_COMPARE(nan, (a != a) | (b != b))
#undef KB_PTX_COMPARE

// rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64 look at the upper words alone, and give one.
PX f64 upper_word(f64 a) {
  return as<f64>(__builtin_bit_cast(b64, a) & 0xffffffff00000000u);
}
PX f64 flushed_upper_word(f64 a) {
  const f64 upper = upper_word(a);
  return std::fabs(upper) < std::numeric_limits<f64>::min() ? std::copysign(0.0, upper) : upper;
}
PX f64 rcp_upper(f64 a) {
  return flushed_upper_word(1 / flushed_upper_word(a));
}
PX f64 rsqrt_upper(f64 a) {
  return upper_word(1 / std::sqrt(flushed_upper_word(a)));
}
PX f64 rsqrt_twice(f64 a) {
  return 1 / std::sqrt(a);
}

// cvt between f32 and f64, to integral values, and between floats and integers.
template <typename To, Flags how, typename T>
PX To convert(T a) {
  // Without a modifier it is a move. A NaN of f64 keeps its sign and upper bits.
  if constexpr (std::is_same_v<To, T> && !how.ftz && !how.sat) return a;
  if (sizeof(T) > sizeof(To) && std::isnan(a) && !how.sat) return static_cast<To>(a);
  const auto made = [](T x) { return static_cast<To>(x); };
  if constexpr (how.ftz && sizeof(T) > sizeof(To)) {
    // Less than the least normal number if its exponent had no limit, as of mul.
    const To scaled = rounded<how.round, To>(made, a * T{0x1p60});
    if (std::fabs(scaled) < To{0x1p-66f}) return out<how>(std::copysign(To{0}, static_cast<To>(a)));
  }
  return out<how>(rounded<how.round, To>(made, in<how>(a)));
}
template <Flags how, typename T>
PX_CALLED T integral(T a) {
  if (std::isnan(a)) return canonical(a);
  if constexpr (how.round == Round::kZero) return std::trunc(a);
  if constexpr (how.round == Round::kDown) return std::floor(a);
  if constexpr (how.round == Round::kUp) return std::ceil(a);
  return std::nearbyint(a);
}
template <Flags how, typename T>
PX T integral_value(T a) {
  return out<how>(integral<how>(in<how>(a)));
}
template <typename To, Flags how, typename T>
PX To real(T a) {
  return rounded<how.round, To>([](T x) { return static_cast<To>(x); }, a);
}
// What is beyond the type becomes its least or greatest value. NaN becomes 0, or the highest bit
// alone where either type has 64 bits.
template <typename To, Flags how, typename T>
PX_CALLED To whole(T a) {
  using Limits = std::numeric_limits<To>;
  const T value = integral<how>(in<how>(a));
  if (std::isnan(value)) {
    const bool wide = sizeof(T) == 8 || sizeof(To) == 8;
    return wide ? static_cast<To>(u64{1} << (8 * sizeof(To) - 1)) : To{0};
  }
  if (value <= static_cast<T>(Limits::min())) return Limits::min();
  if (value >= static_cast<T>(Limits::max())) return Limits::max();
  return static_cast<To>(value);
}

}  // namespace px
