// Elements of cp.reduce.async.bulk (PTX ISA 9.1, 9.7.9.25): each is read, combined and written as
// one; other OS threads do so, too.
#include "bulk_reduction.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "cvt.hpp"

namespace kb::emu {

namespace {

bool is_real(BulkElement element) {
  return element <= BulkElement::kF64;
}

// PTX: .add of f32 flushes subnormal operands and sums to zeros of their sign, others do not.
float flushed(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

// Assumption: a NaN among two counts as missing for min and max, as in atom.
float combined_half(BulkOperation operation, float old, float given) {
  if (operation == BulkOperation::kAdd) return old + given;
  return operation == BulkOperation::kMin ? std::fmin(old, given) : std::fmax(old, given);
}

template <typename T, typename Bits>
Bits combined_integer(BulkOperation operation, Bits old_bits, Bits given_bits) {
  const T old = static_cast<T>(old_bits), given = static_cast<T>(given_bits);
  switch (operation) {
    case BulkOperation::kAdd:
      return old_bits + given_bits;
    case BulkOperation::kMin:
      return static_cast<Bits>(std::min(old, given));
    case BulkOperation::kMax:
      return static_cast<Bits>(std::max(old, given));
    case BulkOperation::kInc:
      return old_bits >= given_bits ? 0 : old_bits + 1;
    case BulkOperation::kDec:
      return old_bits == 0 || old_bits > given_bits ? given_bits : old_bits - 1;
    case BulkOperation::kAnd:
      return old_bits & given_bits;
    case BulkOperation::kOr:
      return old_bits | given_bits;
    default:
      return old_bits ^ given_bits;
  }
}

template <typename Bits, typename Combine>
void each_element(std::byte* to, const std::byte* from, size_t bytes, Combine combine) {
  for (size_t at = 0; at < bytes; at += sizeof(Bits)) {
    Bits given;
    std::memcpy(&given, from + at, sizeof given);
    auto* word = reinterpret_cast<Bits*>(to + at);
    Bits old = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(word, &old, combine(old, given), true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
    }
  }
}

template <typename T>
void each_integer(std::byte* to, const std::byte* from, size_t bytes, BulkOperation operation) {
  using Bits = std::make_unsigned_t<T>;
  each_element<Bits>(to, from, bytes, [operation](Bits old, Bits given) {
    return combined_integer<T>(operation, old, given);
  });
}

float f32_of_bf16(uint16_t bits) {
  return __builtin_bit_cast(float, uint32_t{bits} << 16);
}

}  // namespace

// PTX: 9.7.9.25, the table of operations and types.
bool has_operation(const BulkReduction& reduction) {
  const BulkOperation operation = reduction.operation;
  if (is_real(reduction.element)) {
    const bool half = reduction.element <= BulkElement::kBf16;
    return operation == BulkOperation::kAdd ||
           (half && (operation == BulkOperation::kMin || operation == BulkOperation::kMax));
  }
  const bool counts = operation == BulkOperation::kInc || operation == BulkOperation::kDec;
  return !counts || reduction.element == BulkElement::kU32;
}

void reduce_into(std::byte* to, const std::byte* from, size_t bytes,
                 const BulkReduction& reduction) {
  const BulkOperation how = reduction.operation;
  switch (reduction.element) {
    case BulkElement::kF16:
      return each_element<uint16_t>(to, from, bytes, [how](uint16_t old, uint16_t given) {
        return f16_bits(combined_half(how, f32_of_f16(old), f32_of_f16(given)));
      });
    case BulkElement::kBf16:
      return each_element<uint16_t>(to, from, bytes, [how](uint16_t old, uint16_t given) {
        return bf16_bits(combined_half(how, f32_of_bf16(old), f32_of_bf16(given)));
      });
    case BulkElement::kF32:
      return each_element<uint32_t>(to, from, bytes, [](uint32_t old, uint32_t given) {
        const float sum =
            flushed(__builtin_bit_cast(float, old)) + flushed(__builtin_bit_cast(float, given));
        return std::isnan(sum) ? 0x7fffffffu : bits_of(flushed(sum));
      });
    case BulkElement::kF64:
      return each_element<uint64_t>(to, from, bytes, [](uint64_t old, uint64_t given) {
        return __builtin_bit_cast(
            uint64_t, __builtin_bit_cast(double, old) + __builtin_bit_cast(double, given));
      });
    case BulkElement::kU32:
      return each_integer<uint32_t>(to, from, bytes, how);
    case BulkElement::kS32:
      return each_integer<int32_t>(to, from, bytes, how);
    case BulkElement::kU64:
      return each_integer<uint64_t>(to, from, bytes, how);
    case BulkElement::kS64:
      return each_integer<int64_t>(to, from, bytes, how);
  }
}

}  // namespace kb::emu
