// What every kernel starts from: function qualifiers of the executor, storage types, shared memory.
#pragma once

#include <cstdint>

#include "executor.inl"  // of the backend: KB_DEVICE, KB_HOST_DEVICE, KB_GLOBAL, …, kb::Target

namespace kb {

// False for every T. What the executor lacks is a template that asserts it: declared everywhere, an
// error that names the function where it is called.
template <typename T>
inline constexpr bool kAbsent = false;

// Bit patterns of narrow floats; arithmetic and conversion are in ptx/cvt.cuh.
struct f16 {
  uint16_t bits;  // IEEE binary16
};
struct bf16 {
  uint16_t bits;  // the upper half of a binary32
};
struct e4m3 {
  uint8_t bits;  // 4 exponent bits, 3 mantissa bits, no infinity, NaN = 0x7f or 0xff
};

// Pairs as PTX packs them: `lo` is the element at the lower address.
struct alignas(4) f16x2 {
  f16 lo, hi;
};
struct alignas(4) bf16x2 {
  bf16 lo, hi;
};
struct alignas(2) e4m3x2 {
  e4m3 lo, hi;
};
static_assert(sizeof(f16x2) == 4 && sizeof(bf16x2) == 4 && sizeof(e4m3x2) == 2);

// The CTA's dynamic shared memory as the kernel's one SharedStorage struct. Aligned to 1024 bytes,
// which the 128-byte swizzle needs; the launch passes sizeof(T).
template <typename T>
KB_DEVICE T& shared_storage();

}  // namespace kb

#include "shared_storage.inl"
