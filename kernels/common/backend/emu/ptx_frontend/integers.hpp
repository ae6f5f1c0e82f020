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

// |a - b| + c.
template <typename T>
PX T sad(T a, T b, T c) {
  return add(c, a < b ? sub(b, a) : sub(a, b));
}
// The low 24 bits of an operand.
template <typename T>
PX Doubled<T> low24(T a) {
  return static_cast<T>(a << 8) >> 8;
}
template <typename T>
PX T mul24_lo(T a, T b) {
  return static_cast<T>(low24(a) * low24(b));
}
template <typename T>
PX T mul24_hi(T a, T b) {
  return static_cast<T>((low24(a) * low24(b)) >> 16);
}
template <typename T>
PX T mad24_lo(T a, T b, T c) {
  return add(mul24_lo(a, b), c);
}
template <typename T>
PX T mad24_hi(T a, T b, T c) {
  return add(mul24_hi(a, b), c);
}
// Sums of products of parts, of 8 bits, or of 16 bits and the lower or upper 8.
template <typename Part, typename T>
PX s32 part_of(T a, u32 index) {
  return static_cast<Part>(a >> (8 * sizeof(Part) * index));
}
template <typename T>
using Eighth = std::conditional_t<std::is_signed_v<T>, s8, u8>;
template <typename T>
using Quarter = std::conditional_t<std::is_signed_v<T>, s16, u16>;
template <typename A, typename B>
PX b32 dp4a(b32 a, b32 b, b32 c) {
  for (u32 i = 0; i < 4; ++i) {
    c += static_cast<b32>(part_of<Eighth<A>>(a, i) * part_of<Eighth<B>>(b, i));
  }
  return c;
}
template <typename A, typename B, u32 first>
PX b32 dp2a(b32 a, b32 b, b32 c) {
  for (u32 i = 0; i < 2; ++i) {
    c += static_cast<b32>(part_of<Quarter<A>>(a, i)) *
         static_cast<b32>(part_of<Eighth<B>>(b, first + i));
  }
  return c;
}
// A mask of b bits from bit a (PTX: 9.7.1.18).
template <bool clamp>
PX b32 bmsk(b32 a, b32 b) {
  const u32 position = a & 31, end = position + (b & 31);
  if (clamp && a >= 32) return 0;
  const b32 from = ~0u << position;
  const bool open = end >= 32 || (clamp && b >= 32);
  return open ? from : from & ~(~0u << end);
}
// The low b bits, their sign extended (PTX: 9.7.1.20).
template <bool clamp, typename T>
PX T szext(T a, u32 b) {
  if (clamp && b >= 32) return a;
  const u32 n = b & 31;
  if (n == 0) return 0;
  return static_cast<T>(a << (32 - n)) >> (32 - n);
}
template <typename T>
PX u32 bfind_shiftamt(T a) {
  const u32 found = bfind(a);
  return found == ~0u ? found : kWidth<T> - 1 - found;
}
// The nth set bit from a base (PTX: 9.7.1.17).
PX_CALLED u32 fns(b32 mask, u32 base, s32 offset) {
  if (base >= 32) return ~0u;
  if (offset == 0) return (mask >> base & 1) != 0 ? base : ~0u;
  s64 count = offset > 0 ? s64{offset} : -s64{offset};
  for (s64 at = base; at >= 0 && at < 32; at += offset > 0 ? 1 : -1) {
    if ((mask >> at & 1) != 0 && --count == 0) return static_cast<u32>(at);
  }
  return ~0u;
}
// prmt's modes: selectors by the low bits of the control.
template <u32 s0, u32 s1, u32 s2, u32 s3>
PX b32 prmt_mode(b32 a, b32 b, u32 control) {
  const u32 n = control & 3;
  return prmt(a, b, n == 0 ? s0 : n == 1 ? s1 : n == 2 ? s2 : s3);
}
// Pairs of 16 bits.
template <typename T, typename Operation>
PX b32 each_half(b32 a, b32 b, Operation operation) {
  return joined<b32>(static_cast<b16>(operation(static_cast<T>(a), static_cast<T>(b))),
                     static_cast<b16>(operation(static_cast<T>(a >> 16), static_cast<T>(b >> 16))));
}
template <typename T>
PX b32 add_x2(b32 a, b32 b) {
  return each_half<T>(a, b, [](T x, T y) { return add(x, y); });
}
template <typename T>
PX T relu(T a) {
  return a < 0 ? T{0} : a;
}
template <typename T, bool positive>
PX b32 min_x2(b32 a, b32 b) {
  return each_half<T>(a, b, [](T x, T y) { return positive ? relu(min(x, y)) : min(x, y); });
}
template <typename T, bool positive>
PX b32 max_x2(b32 a, b32 b) {
  return each_half<T>(a, b, [](T x, T y) { return positive ? relu(max(x, y)) : max(x, y); });
}
// Bytes: of each the difference, or c plus all of them.
PX b32 vabsdiff4(b32 a, b32 b, b32) {
  b32 found = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    const b32 x = a >> shift & 255, y = b >> shift & 255;
    found |= (x < y ? y - x : x - y) << shift;
  }
  return found;
}
PX b32 vabsdiff4_add(b32 a, b32 b, b32 c) {
  const b32 each = vabsdiff4(a, b, 0);
  return c + (each & 255) + (each >> 8 & 255) + (each >> 16 & 255) + (each >> 24);
}
PX s32 min_relu(s32 a, s32 b) {
  return relu(min(a, b));
}
PX s32 max_relu(s32 a, s32 b) {
  return relu(max(a, b));
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
