// wmma (PTX ISA 9.1, 9.7.14.4): fragments whose layout is this file's and MmaForm::by_lines'.
#pragma once

#include "units.hpp"

namespace px {

// A matrix in memory: `lines` of them, each of `length` elements: rows of A, C and D along K and N,
// columns of B along K. Neighbours in a line are neighbours in memory, or else `stride` elements
// apart, and then lines are neighbours.
struct WmmaTile {
  u32 length;
  bool contiguous;
  u32 stride;
  u32 offset(u32 index) const {
    const u32 line = index / length, at = index % length;
    return contiguous ? line * stride + at : line + at * stride;
  }
};

// The lane's elements, `count` of them, and once more as far as there are registers.
template <typename T, int count, int registers>
PX void wmma_load(b32* out, const Byte* from, const WmmaTile& tile) {
  emu::warp_meets("wmma.load");
  constexpr int kBytes = registers * 4;
  for (int i = 0; i < count; ++i) {
    const T value = load<T>(from + tile.offset(laneid() * count + i) * sizeof(T));
    for (size_t at = i * sizeof(T); at < kBytes; at += count * sizeof(T)) {
      __builtin_memcpy(reinterpret_cast<Byte*>(out) + at, &value, sizeof value);
    }
  }
}
template <typename T, int count>
PX void wmma_store(Byte* to, const b32* in, const WmmaTile& tile) {
  emu::warp_meets("wmma.store");
  for (int i = 0; i < count; ++i) {
    T value;
    __builtin_memcpy(&value, reinterpret_cast<const Byte*>(in) + i * sizeof(T), sizeof value);
    store<T>(to + tile.offset(laneid() * count + i) * sizeof(T), value);
  }
}

}  // namespace px
