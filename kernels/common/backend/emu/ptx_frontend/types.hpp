// PTX types as C++ types, and registers' bits as values of them (PTX ISA 9.1, 5.2). A register is
// an unsigned integer of its width; a value has the type that an instruction sees it as.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "runtime/cvt.hpp"

#define PX inline __attribute__((always_inline))
// Of what takes branches: thousands of copies in one function would take g++ a minute.
#define PX_CALLED inline __attribute__((noinline, const))

namespace px {

namespace emu = kb::emu;

using Byte = unsigned char;
using pred = bool;
using b8 = uint8_t;
using b16 = uint16_t;
using b32 = uint32_t;
using b64 = uint64_t;
using b128 = unsigned __int128;
using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
using f32 = float;
using f64 = double;
struct f16 {
  b16 bits;
};
struct bf16 {
  b16 bits;
};
struct f16x2 {
  b32 bits;
};
struct bf16x2 {
  b32 bits;
};
struct f32x2 {
  f32 low, high;
};

template <typename T>
inline constexpr bool kInteger = std::is_integral_v<T> || std::is_same_v<T, b128>;
template <size_t bytes>
using Bits = std::conditional_t<
    bytes == 1, b8, std::conditional_t<bytes == 2, b16, std::conditional_t<bytes == 4, b32, b64>>>;

// Bits as a value of a type.
template <typename T, typename B>
PX T as(B bits) {
  if constexpr (kInteger<T>) {
    return static_cast<T>(bits);
  } else {
    return __builtin_bit_cast(T, bits);
  }
}

// A value as the bits of a register, which may be wider: signed ones extend their sign.
template <typename B, typename T>
PX B stored(T value) {
  if constexpr (kInteger<T>) {
    return static_cast<B>(value);
  } else {
    return static_cast<B>(__builtin_bit_cast(Bits<sizeof(T)>, value));
  }
}

// Vectors in one register: the first element in the lowest bits.
template <typename Whole, typename... Parts>
PX Whole joined(Parts... parts) {
  Whole whole = 0;
  unsigned shift = 0;
  ((whole |= static_cast<Whole>(parts) << shift, shift += 8 * sizeof(Parts)), ...);
  return whole;
}
template <typename Part, int index, typename Whole>
PX Part part(Whole whole) {
  return static_cast<Part>(whole >> (8 * sizeof(Part) * index));
}

}  // namespace px
