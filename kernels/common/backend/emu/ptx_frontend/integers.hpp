// Integer arithmetic, logic and shifts (PTX ISA 9.1, 9.7.1 and 9.7.8). Everything wraps.
#pragma once

#include "types.hpp"

namespace px {

template <typename T>
using Unsigned = std::make_unsigned_t<T>;
template <typename T>
using Doubled = std::conditional_t<
    std::is_signed_v<T>,
    std::conditional_t<sizeof(T) == 2, s32, std::conditional_t<sizeof(T) == 4, s64, __int128>>,
    std::conditional_t<sizeof(T) == 2, u32, std::conditional_t<sizeof(T) == 4, u64, b128>>>;
template <typename T>
inline constexpr u32 kWidth = 8 * sizeof(T);

// Beyond the width of the widest type, so that nothing overflows on the way.
template <typename T>
PX T add(T a, T b) {
  return static_cast<T>(u64(a) + u64(b));
}
template <typename T>
PX T sub(T a, T b) {
  return static_cast<T>(u64(a) - u64(b));
}
template <typename T>
PX T mul_lo(T a, T b) {
  return static_cast<T>(u64(a) * u64(b));
}
template <typename T>
PX Doubled<T> mul_wide(T a, T b) {
  return static_cast<Doubled<T>>(static_cast<Doubled<T>>(a) * static_cast<Doubled<T>>(b));
}
template <typename T>
PX T mul_hi(T a, T b) {
  return static_cast<T>(mul_wide(a, b) >> kWidth<T>);
}
template <typename T>
PX T mad_lo(T a, T b, T c) {
  return add(mul_lo(a, b), c);
}
template <typename T>
PX T mad_hi(T a, T b, T c) {
  return add(mul_hi(a, b), c);
}
template <typename T>
PX Doubled<T> mad_wide(T a, T b, Doubled<T> c) {
  return add(mul_wide(a, b), c);
}
PX s32 add_sat(s32 a, s32 b) {
  const s64 sum = s64{a} + b;
  return sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : static_cast<s32>(sum);
}
PX s32 sub_sat(s32 a, s32 b) {
  const s64 difference = s64{a} - b;
  return difference > INT32_MAX   ? INT32_MAX
         : difference < INT32_MIN ? INT32_MIN
                                  : static_cast<s32>(difference);
}

template <typename T>
PX T neg(T a) {
  return static_cast<T>(0 - u64(a));
}
template <typename T>
PX T abs(T a) {
  return a < 0 ? neg(a) : a;
}
// Division by zero gives all ones, for the remainder too, as an H200 does; PTX leaves both open.
template <typename T>
PX_CALLED T div(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return neg(a);
  return static_cast<T>(a / b);
}
template <typename T>
PX_CALLED T rem(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
  return static_cast<T>(a % b);
}
template <typename T>
  requires kInteger<T>
PX T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
  requires kInteger<T>
PX T max(T a, T b) {
  return a < b ? b : a;
}

template <typename T>
PX T bit_and(T a, T b) {
  return a & b;
}
template <typename T>
PX T bit_or(T a, T b) {
  return a | b;
}
template <typename T>
PX T bit_xor(T a, T b) {
  return a ^ b;
}
template <typename T>
PX T bit_not(T a) {
  if constexpr (std::is_same_v<T, pred>) {
    return !a;
  } else {
    return static_cast<T>(~a);
  }
}
template <typename T>
PX T cnot(T a) {
  return a == 0 ? 1 : 0;
}

// selp, without a branch.
template <typename B>
PX B selected(bool p, B a, B b) {
  return static_cast<B>(b ^ ((a ^ b) & (B{0} - B{p})));
}

// Shifts by more than the width shift everything out.
template <typename T>
PX T shl(T a, u32 n) {
  return n >= kWidth<T> ? T{0} : static_cast<T>(a << n);
}
template <typename T>
PX T shr(T a, u32 n) {
  return n >= kWidth<T> ? static_cast<T>(a < 0 ? -1 : 0) : static_cast<T>(a >> n);
}
PX b32 shf_l_wrap(b32 a, b32 b, u32 n) {
  return static_cast<b32>(joined<b64>(a, b) << (n & 31) >> 32);
}
PX b32 shf_r_wrap(b32 a, b32 b, u32 n) {
  return static_cast<b32>(joined<b64>(a, b) >> (n & 31));
}
PX b32 shf_l_clamp(b32 a, b32 b, u32 n) {
  return n >= 32 ? a : shf_l_wrap(a, b, n);
}
PX b32 shf_r_clamp(b32 a, b32 b, u32 n) {
  return n >= 32 ? b : shf_r_wrap(a, b, n);
}

// Fields: position and length are the low eight bits of their operands.
template <typename T>
PX T bfe(T a, u32 position, u32 length) {
  position &= 255;
  length &= 255;
  if (length == 0) return 0;
  const u32 last = position + length - 1;
  const bool sign =
      std::is_signed_v<T> && (static_cast<Unsigned<T>>(a) >> min(last, kWidth<T> - 1) & 1) != 0;
  Unsigned<T> field = position < kWidth<T> ? static_cast<Unsigned<T>>(a) >> position : 0;
  const u32 held = position < kWidth<T> ? min(length, kWidth<T> - position) : 0;
  if (held < kWidth<T>) {
    const Unsigned<T> mask = (Unsigned<T>{1} << held) - 1;
    field = sign ? field | ~mask : field & mask;
  }
  return static_cast<T>(field);
}
template <typename T>
PX T bfi(T a, T b, u32 position, u32 length) {
  position &= 255;
  length &= 255;
  if (length == 0 || position >= kWidth<T>) return b;
  const T ones = length >= kWidth<T> ? ~T{0} : (T{1} << length) - 1;
  const T mask = ones << position;
  return (b & ~mask) | (a << position & mask);
}

template <typename T>
PX u32 popc(T a) {
  return static_cast<u32>(__builtin_popcountll(a));
}
template <typename T>
PX u32 clz(T a) {
  return a == 0 ? kWidth<T> : static_cast<u32>(__builtin_clzll(a)) - (64 - kWidth<T>);
}
template <typename T>
PX_CALLED T brev(T a) {
  T reversed = 0;
  for (u32 i = 0; i < kWidth<T>; ++i) reversed |= (a >> i & 1) << (kWidth<T> - 1 - i);
  return reversed;
}
// The highest bit that is not the sign's, or all ones.
template <typename T>
PX u32 bfind(T a) {
  const auto bits = static_cast<Unsigned<T>>(a < 0 ? ~a : a);
  return bits == 0 ? ~0u : kWidth<T> - 1 - clz(bits);
}
// The highest bit of a selector replicates the sign of its byte.
PX_CALLED b32 prmt(b32 a, b32 b, u32 selectors) {
  const b64 bytes = joined<b64>(a, b);
  b32 result = 0;
  for (u32 i = 0; i < 4; ++i) {
    const u32 selector = selectors >> 4 * i;
    b32 byte = static_cast<b32>(bytes >> 8 * (selector & 7)) & 0xff;
    if (selector & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= byte << 8 * i;
  }
  return result;
}

// cvt between integers.
template <typename To, typename From>
PX To converted(From a) {
  return static_cast<To>(a);
}
template <typename To, typename From>
PX To saturated(From a) {
  using Limits = std::numeric_limits<To>;
  if (a < 0) {
    return static_cast<s64>(a) < static_cast<s64>(Limits::min()) ? Limits::min()
                                                                 : static_cast<To>(a);
  }
  return static_cast<u64>(a) > static_cast<u64>(Limits::max()) ? Limits::max() : static_cast<To>(a);
}

}  // namespace px
