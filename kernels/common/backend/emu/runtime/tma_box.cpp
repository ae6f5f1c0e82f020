// Moving boxes between tensors and shared memory: cp.async.bulk.tensor (PTX ISA 9.1, 5.5 and
// 9.7.9): traversal strides, what lies outside, swizzle on absolute addresses.
#include "tma_box.hpp"

#include <algorithm>
#include <cstring>

#include "global_shadow.hpp"

namespace kb::emu {

namespace {

constexpr uint32_t kMaxRowBytes = 256 * 8;

// Coordinates of dimension `dim` that the box visits and that are inside the tensor: their number,
// and the first.
struct Inside {
  uint64_t count = 0;
  int64_t first = 0;
};

// PTX: 5.5.3 (tiled mode) and elementStrides: along a dimension with traversal stride s every s-th
// element is moved, ceil(box / s) of them.
// Of one dimension: skips what lies before the tensor, ends where it ends.
// Assumption: with a start before the tensor the steps begin at the start, so the first element
// inside is the first multiple of the stride behind it.
Inside inside(const Box& box, uint32_t dim) {
  const int64_t step = dim == 0 ? 1 : box.map.element_strides[dim];
  const auto extent = static_cast<int64_t>(box.map.dims[dim]);
  const int64_t start = box.at[dim];
  const int64_t skipped = start < 0 ? (-start + step - 1) / step : 0;
  const int64_t first = start + skipped * step;
  if (skipped >= box.count[dim] || first >= extent) return {};
  const int64_t fitting = (extent - first + step - 1) / step;
  return {static_cast<uint64_t>(std::min<int64_t>(box.count[dim] - skipped, fitting)), first};
}

}  // namespace

// Resolves a map and a start: what to visit, how many bytes, and which part of global memory.
// Assumption: the stride of dimension 0 is ignored without interleaving, as the driver's
// documentation has it.
// Assumption: two elements of four bits are copied together, wherever the box starts: an odd start
// is taken for the even one before.
Box::Box(const MapImage& image, const BoxStart& given) : map(in_bytes(image)), start(given) {
  const uint32_t element = element_bytes(map);
  rows = 1;
  for (uint32_t d = 0; d < 5; ++d) {
    const bool used = d < map.rank;
    at[d] = used ? start.at[d] : 0;
    if (d == 0 && map.element != image.element) at[0] >>= 1;
    const uint32_t step = d == 0 ? 1 : map.element_strides[d];
    count[d] = used ? (map.box[d] + step - 1) / step : 1;
    if (d > 0) rows *= count[d];
  }
  if (start.mode == BoxMode::kIm2col) rows = map.box[1];
  if (start.mode == BoxMode::kRows) rows = 4;
  // A swizzle of 32, 64 or 128 bytes makes rows of that pitch, whatever the box's inner extent.
  row_bytes = count[0] * element;
  pitch = map.swizzle == 0 ? row_bytes : swizzle_bytes();
  bytes = rows * row_bytes;
  footprint = rows * pitch;

  first = end = 0;
  // The range of global memory that the part inside spans: for the bounds check, in one go.
  const Inside x = inside(*this, 0);
  inside_first = x.count == 0 ? 0 : static_cast<uint32_t>(x.first - at[0]) * element;
  inside_end = inside_first + static_cast<uint32_t>(x.count) * element;
  if (x.count == 0) return;
  if (start.mode != BoxMode::kTile) {
    each_row([&](uint64_t address, uint32_t, bool inside) {
      if (!inside) return;
      const uint64_t low = address + static_cast<uint64_t>(x.first) * element;
      first = end == 0 ? low : std::min(first, low);
      end = std::max(end, low + x.count * element);
    });
    return;
  }
  uint64_t low = map.address + static_cast<uint64_t>(x.first) * element;
  uint64_t high = low + x.count * element;
  for (uint32_t d = 1; d < map.rank; ++d) {
    const Inside part = inside(*this, d);
    if (part.count == 0) return;
    const uint64_t stride = map.strides[d - 1];
    low += static_cast<uint64_t>(part.first) * stride;
    high +=
        (static_cast<uint64_t>(part.first) + (part.count - 1) * map.element_strides[d]) * stride;
  }
  first = low;
  end = high;
}

// Calls row(address, place in the box, whether it is inside) for every row of the contiguous
// dimension.
// Order in shared memory: the first dimension runs fastest, as the box's coordinates do (5.5.3).
template <typename Row>
void Box::each_row(const Row& row) const {
  const uint32_t rank = map.rank;
  int64_t place[5];
  std::copy_n(at, 5, place);
  for (uint32_t number = 0; number < rows; ++number) {
    uint64_t address = map.address;
    bool inside = inside_first != inside_end;
    for (uint32_t d = 1; d < rank; ++d) {
      const bool shifted = start.mode == BoxMode::kIm2col && d + 1 < rank;
      const int64_t coordinate = place[d] + (shifted ? start.offsets[d - 1] : 0);
      inside &= static_cast<uint64_t>(coordinate) < map.dims[d];
      address += static_cast<uint64_t>(coordinate) * map.strides[d - 1];
    }
    row(address, number * pitch, inside);
    next(number, place);
  }
}

// PTX: 5.5.4 (im2col mode): the pixels of the bounding box, W first, then H, D and the images; the
// box reaches from the lower corner to the last pixel plus the upper corner, and a traversal stride
// is from pixel to pixel. The instruction's offsets are added to each. 5.5.3.4 (.tile::gather4,
// .tile::scatter4): the rows that it names.
void Box::next(uint32_t number, int64_t (&place)[5]) const {
  if (start.mode == BoxMode::kRows) {
    place[1] = start.at[std::min(number + 2, 4u)];
    return;
  }
  const bool pixels = start.mode == BoxMode::kIm2col;
  for (uint32_t d = 1; d < map.rank; ++d) {
    place[d] += map.element_strides[d];
    if (pixels && d + 1 == map.rank) return;
    const int64_t last = pixels ? static_cast<int64_t>(map.dims[d]) - 1 + map.upper[d - 1]
                                : at[d] + int64_t{count[d] - 1} * map.element_strides[d];
    if (place[d] <= last) return;
    place[d] = pixels ? static_cast<int16_t>(map.box[d + 1]) : at[d];
  }
}

// A load of which nothing was ever written is reported; of a tile some rows may be empty.
void Box::check_global(bool writing, const Actor& actor) const {
  const auto* begin = reinterpret_cast<const void*>(first);
  if (first == end || !global_watched(begin, writing)) return;
  const int64_t x_bytes = at[0] * static_cast<int64_t>(element_bytes(map)) + inside_first;
  const uint32_t size = (writing ? stored_end() : inside_end) - inside_first;
  Region& region = *region_at(static_cast<const std::byte*>(begin));
  bool any = writing;
  each_row([&](uint64_t address, uint32_t, bool inside) {
    if (!inside) return;
    const auto* row = reinterpret_cast<const std::byte*>(address) + x_bytes;
    if (writing) {
      global_store(region, row, size, actor);
    } else {
      any |= global_load(region, row, size, actor);
    }
  });
  if (!any) report_unwritten(begin, false, false, actor.pc, actor.what);
}

// PTX: 5.5.7: 16-byte pieces within 128 bytes change places by the address bits above: 32B by bit
// 7, 64B by bits 7 and 8, 128B by bits 7 to 9.
// The permutation by absolute address, unless a fact is broken.
// Assumption: the bits are those of the shared memory address, not of the place in the box; tcgen05
// and wgmma descriptors count the same way. Broken facts show that kernels depend on it
// (tests/emulator/test_broken_facts.py).
Swizzle Box::swizzle(uint32_t offset) const {
  Swizzle swizzle;
  if (broken(Fact::kNoSwizzle)) return swizzle;
  swizzle.mask = (1u << map.swizzle) - 1;
  if (broken(Fact::kSwizzleRowBit)) swizzle.shift = 8;
  if (broken(Fact::kSwizzleRelative)) swizzle.origin = offset;
  return swizzle;
}

// PTX: oobFill (5.5, tensor map): zero, or a NaN that is the same for all floating-point types.
// What lies outside reads as zero, or as a NaN if the map says so.
// Assumption: the NaN's bytes are 0x7ff7 repeated, as an H200 writes them.
void Box::fill(std::byte* out, uint32_t size) const {
  if (static_cast<TensorMapFill>(map.fill) == TensorMapFill::kZero) {
    std::memset(out, 0, size);
    return;
  }
  // The pattern is the same for every floating-point type.
  constexpr std::byte kNan[] = {std::byte{0xf7}, std::byte{0x7f}};
  for (uint32_t i = 0; i < size; ++i) out[i] = kNan[i % 2];
}

namespace {

// PTX: .tf32 and .tf32.ftz (5.5.1): f32 in global memory, tf32 in shared memory.
// Assumption: to nearest, ties to even, with the low 13 bits zero; .ftz keeps a zero's sign.
void round_to_tf32(std::byte* row, uint32_t bytes, bool flushes) {
  for (uint32_t at = 0; at < bytes; at += sizeof(uint32_t)) {
    uint32_t word;
    std::memcpy(&word, row + at, sizeof word);
    const uint32_t exponent = word >> 23 & 0xff;
    if (flushes && exponent == 0) word &= 1u << 31;
    if (exponent != 0xff) word += 0xfff + (word >> 13 & 1);
    word &= ~0x1fffu;
    std::memcpy(row + at, &word, sizeof word);
  }
}

}  // namespace

// PTX: 9.7.9, cp.async.bulk.tensor into shared memory.
// Into shared memory, swizzled.
void Box::load(std::byte* shared, uint32_t offset) const {
  // The window starts at kSharedBase, a multiple of every swizzle's pattern: offsets have the
  // address bits that the swizzle looks at.
  static_assert(kSharedBase % 1024 == 0);
  const Swizzle place = swizzle(offset);
  const bool rounds = map.element == kTf32Element || map.element == kTf32FtzElement;
  const bool as_it_is = inside_first == 0 && inside_end == row_bytes && !rounds;
  const int64_t x_bytes = at[0] * static_cast<int64_t>(element_bytes(map));
  alignas(kPiece) std::byte patched[kMaxRowBytes];
  each_row([&](uint64_t address, uint32_t position, bool inside) {
    const std::byte* source = patched;
    if (inside && as_it_is) {
      source = reinterpret_cast<const std::byte*>(address + static_cast<uint64_t>(x_bytes));
    } else {
      fill(patched, row_bytes);
      if (inside) {
        const uint64_t from = address + static_cast<uint64_t>(x_bytes) + inside_first;
        std::memcpy(patched + inside_first, reinterpret_cast<const void*>(from),
                    inside_end - inside_first);
        if (rounds) {
          round_to_tf32(patched + inside_first, inside_end - inside_first,
                        map.element == kTf32FtzElement);
        }
      }
    }
    const uint32_t to = offset + position;
    if (place.mask == 0) {
      std::memcpy(shared + to, source, row_bytes);
      return;
    }
    // The same for the whole row: it lies within one 128-byte line, so the key's bits do not
    // change.
    const uint32_t key = place.key(to);
    for (uint32_t piece = 0; piece < row_bytes; piece += kPiece) {
      std::memcpy(shared + ((to + piece) ^ key), source + piece, kPiece);
    }
  });
}

// PTX: 9.7.9, cp.async.bulk.tensor to global memory.
// Out of shared memory, unswizzled; what lies outside is not written.
// Assumption: a row that the tensor's extent cuts is written up to the next multiple of 16 bytes,
// with what shared memory holds there: seen on an H200, and reported as a race if another CTA owns
// those bytes.
// Assumption: a reduction takes the elements inside alone.
void Box::store(const std::byte* image, uint32_t offset, const BulkReduction& reduction) const {
  const Swizzle place = swizzle(offset);
  const int64_t x_bytes = at[0] * static_cast<int64_t>(element_bytes(map));
  alignas(kPiece) std::byte straight[kMaxRowBytes];
  each_row([&](uint64_t address, uint32_t position, bool inside) {
    if (!inside) return;
    const std::byte* row = image + position;
    if (place.mask != 0) {
      const uint32_t from = offset + position;
      const uint32_t key = place.key(from);
      for (uint32_t piece = 0; piece < row_bytes; piece += kPiece) {
        std::memcpy(straight + piece, image + (((from + piece) ^ key) - offset), kPiece);
      }
      row = straight;
    }
    auto* to =
        reinterpret_cast<std::byte*>(address + static_cast<uint64_t>(x_bytes) + inside_first);
    const uint32_t size = stored_end() - inside_first;
    if (reduction.operation == BulkOperation::kCopy) {
      std::memcpy(to, row + inside_first, size);
    } else {
      reduce_into(to, row + inside_first, size, reduction);
    }
  });
}

}  // namespace kb::emu
