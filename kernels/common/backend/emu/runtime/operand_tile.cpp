// Operands in shared memory as matrix descriptors describe them (PTX ISA 9.1, 9.7.15 and 9.7.16):
// start, leading and stride offsets, swizzle on absolute addresses.
#include "operand_tile.hpp"

#include <algorithm>
#include <cstring>

#include "api_ptx.hpp"

namespace kb::emu {

namespace {

constexpr uint32_t kChunk = 16;
constexpr uint32_t kRowsOfChunk = 8;  // of a transposed tile
constexpr uint32_t kDepth = 16;       // elements of K that one operation reads there
constexpr uint32_t kElement = 2;      // bytes, there

// PTX: addresses and offsets of a descriptor are given in units of 16 bytes, 14 bits each.
uint32_t bits(uint64_t descriptor, uint32_t low, uint32_t count) {
  return static_cast<uint32_t>(descriptor >> low & ((uint64_t{1} << count) - 1));
}

}  // namespace

// PTX: shared memory descriptor: 9.7.15 for wgmma (base offset in 51:49, swizzle in 63:62),
// 9.7.16.4.1 for tcgen05 (constant 0b001 in 48:46, swizzle in 63:61).
// Takes a descriptor apart and refuses what the hardware does not define.
// Not modelled: base offsets other than zero, the 128-byte swizzle with 32-byte atoms, absolute
// leading offsets; transposed tiles that start inside a swizzled row.
// Assumption: a start inside a swizzled row addresses a later part of K, as all kernels step
// through a row; the pattern stays where the tile's own alignment puts it.
OperandTile::OperandTile(uint64_t descriptor, User user, Pc pc, const char* operand,
                         bool transposed)
    : start_(bits(descriptor, 0, 14) * kChunk),
      leading_(bits(descriptor, 16, 14) * kChunk),
      stride_(bits(descriptor, 32, 14) * kChunk),
      width_(0),
      transposed_(transposed) {
  std::string problem;
  const uint32_t swizzle = bits(descriptor, 61, 3);
  const auto constant = static_cast<uint32_t>(user);
  if (swizzle == 2) width_ = 128;
  if (swizzle == 4) width_ = 64;
  if (swizzle == 6) width_ = 32;
  // The swizzle repeats every eight rows: starts and strides are multiples of that.
  const uint32_t pattern = 8 * width_;
  if (bits(descriptor, 14, 2) != 0 || bits(descriptor, 30, 2) != 0 ||
      bits(descriptor, 53, 8) != 0) {
    problem = "reserved bits are set";
  } else if (bits(descriptor, 46, 3) != constant) {
    problem = "bits 48:46 are " + std::to_string(bits(descriptor, 46, 3)) + ", not " +
              std::to_string(constant);
  } else if (bits(descriptor, 49, 3) != 0 || bits(descriptor, 52, 1) != 0) {
    problem = "the base offset and the mode of the leading offset are zero here";
  } else if (swizzle % 2 != 0) {
    problem = "swizzle code " + std::to_string(swizzle) + " is not 0, 2, 4 or 6";
  } else if (width_ != 0 && start_ % pattern >= width_ && !runs_ptx()) {
    problem = inside_a_pattern(pattern);
  } else if (width_ != 0 && transposed_ && start_ % width_ != 0) {
    problem = "a transposed tile starts " + std::to_string(start_ % width_) +
              " bytes inside a swizzled row";
  } else if (width_ != 0 && start_ % width_ + kRowBytes > width_) {
    problem = "32 bytes from byte " + std::to_string(start_ % width_) + " on leave the row of " +
              std::to_string(width_);
  } else if (width_ != 0 && stride_ % pattern != 0) {
    problem = "the stride offset, " + std::to_string(stride_) + ", is not a multiple of " +
              std::to_string(pattern);
  }
  if (!problem.empty()) {
    fail({.kind = Class::kDescriptor,
          .pc = pc,
          .text = std::string("descriptor of ") + operand + ": " + problem});
  }
  if (width_ != 0 && start_ % pattern >= width_) {
    report({.kind = Class::kDescriptor,
            .pc = pc,
            .formal = true,
            .text = std::string("descriptor of ") + operand + ": " + inside_a_pattern(pattern) +
                    ", and its base offset is 0"});
  }
  if (broken(Fact::kStrideHalved)) stride_ /= 2;
  if (broken(Fact::kOffsetsExchanged)) std::swap(stride_, leading_);
}

// PTX: matrix base offset (9.7.15.5.1, 9.7.16.5.1): zero for a tile whose pattern starts at its
// natural boundary.
// Assumption: where the pattern counts from absolute addresses, as the TMA's does, zero is right
// for a tile that starts inside one, too; CuTe DSL programs place tiles so. Own steps may not.
std::string OperandTile::inside_a_pattern(uint32_t pattern) const {
  return "a tile with the " + std::to_string(width_) + "-byte swizzle starts " +
         std::to_string(start_ % pattern) + " bytes past a multiple of " + std::to_string(pattern);
}

// PTX: tcgen05.cp.32x128b: rows of 128 bits, eight to a core matrix.
// Rows of 16 bytes, without swizzle, for tcgen05.cp.
OperandTile OperandTile::scales(uint64_t descriptor, Pc pc, const char* operand) {
  OperandTile tile(descriptor, User::kTcgen05, pc, operand);
  if (tile.width_ != 0) {
    fail({.kind = Class::kDescriptor,
          .pc = pc,
          .text = std::string("descriptor of ") + operand + ": rows of 16 bytes have no swizzle"});
  }
  tile.chunks_ = 1;
  return tile;
}

// PTX: canonical K-major layouts (9.7.15, 9.7.16): core matrices of 8 rows of 16 bytes; without
// swizzle the leading offset steps along K, the stride offset along M or N; with one the leading
// offset is not used.
// Offset of 16 bytes of a row: core matrices of eight rows, `stride` apart; within, the swizzle
// exchanges 16-byte units by address bits.
uint32_t OperandTile::chunk(uint32_t row, uint32_t index) const {
  const uint32_t group = start_ + row / 8 * stride_ - kSharedBase;
  // A core matrix is 128 contiguous bytes; the second 16 bytes of a row are in the next one along
  // K.
  if (width_ == 0) return group + row % 8 * kChunk + index * leading_;
  // The pattern counts from absolute addresses; kSharedBase is a multiple of it.
  const uint32_t origin = broken(Fact::kSwizzleRelative) ? start_ - kSharedBase : 0;
  const uint32_t linear = group + row % 8 * width_ + index * kChunk - origin;
  // Address bits 7 … 9 onto bits 4 … 6, as many as the width has pieces: what Box::swizzle did when
  // it wrote them.
  return origin + (linear ^ ((linear >> 7 & (width_ / 16 - 1)) << 4));
}

// The pattern counts from absolute addresses; kSharedBase is a multiple of it.
uint32_t OperandTile::swizzled(uint32_t linear) const {
  return linear ^ ((linear >> 7 & (width_ / 16 - 1)) << 4);
}

// PTX: canonical MN-major layouts (9.7.15): units of 16 bytes along M or N. Without swizzle eight
// k of a unit are contiguous, the stride offset steps to the next unit, the leading one to the next
// eight k. With one, rows of its width hold neighbouring units, eight k are an atom, the stride
// offset steps to the next eight k and the leading one to the next atom along M or N.
uint32_t OperandTile::eight_rows(uint32_t row, uint32_t k) const {
  const uint32_t unit = row / kRowsOfChunk;
  const uint32_t base = start_ - kSharedBase;
  if (width_ == 0) {
    return base + unit * stride_ + k % 8 * kChunk + k / 8 * leading_;
  }
  const uint32_t units = width_ / kChunk;
  return swizzled(base + unit / units * leading_ + unit % units * kChunk + k % 8 * width_ +
                  k / 8 * stride_);
}

void OperandTile::check_transposed(Cta& cta, uint32_t first, uint32_t end, const Actor& actor,
                                   StaleCells& stale) const {
  for (uint32_t k = 0; k < kDepth; ++k) {
    for (uint32_t row = first; row < end; row += kRowsOfChunk) {
      const StaleCells found = shared_read(cta, eight_rows(row, k), kChunk, actor);
      stale.insert(stale.end(), found.begin(), found.end());
    }
  }
}

void OperandTile::read_transposed(const Cta& cta, uint32_t rows, const StaleCells& stale,
                                  uint8_t* out) const {
  uint8_t column[kChunk];
  for (uint32_t k = 0; k < kDepth; ++k) {
    for (uint32_t row = 0; row < rows; row += kRowsOfChunk) {
      const uint32_t offset = eight_rows(row, k);
      if (stale.empty()) {
        std::memcpy(column, cta.shared + offset, kChunk);
      } else {
        shared_async_bytes(cta, offset, kChunk, stale, column);
      }
      for (uint32_t each = 0; each < kRowsOfChunk; ++each) {
        std::memcpy(out + (row + each) * kRowBytes + k * kElement, column + each * kElement,
                    kElement);
      }
    }
  }
}

// PTX: shared memory matrix layout (9.7.15.5.1): the swizzle is that with which the tile was
// written. A box of a tensor map that was given another one may have been laid out for it: a note.
void OperandTile::note_swizzle(const Cta& cta, const Actor& actor) const {
  const uint32_t at = start_ - kSharedBase;
  for (const LoadedBox& box : cta.tma.loaded) {
    if (at - box.offset >= box.bytes || box.width == width_) continue;
    const auto words = [](uint32_t width) {
      return width == 0 ? std::string("no swizzle")
                        : "the " + std::to_string(width) + "-byte swizzle";
    };
    note({.kind = Class::kDescriptor,
          .pc = actor.pc,
          .other_pc = box.pc,
          .shared_offset = at,
          .text = std::string(actor.what) + " reads a tile with " + words(width_) +
                  " that TMA has written with " + words(box.width)});
    return;
  }
}

// All of what the operation will read, at its issue.
// What one instruction reads is all of the operand's rows and 32 bytes of K of each, whatever the
// values.
void OperandTile::check(Cta& cta, uint32_t first, uint32_t end, const Actor& actor,
                        StaleCells& stale) const {
  if (checking()) note_swizzle(cta, actor);
  if (transposed_) {
    check_transposed(cta, first, end, actor, stale);
    return;
  }
  const uint32_t row_bytes = width_ == 0 ? kChunk : width_;
  const uint32_t base = width_ == 0 ? start_ : start_ / row_bytes * row_bytes;
  if (base < kSharedBase) {
    fail({.kind = Class::kOutOfBounds,
          .pc = actor.pc,
          .text = std::string(actor.what) + " reads address " + std::to_string(base) +
                  ", before the CTA's shared memory"});
  }
  if (!checking()) {
    const uint32_t columns = width_ == 0 ? (chunks_ - 1) * leading_ : 0;
    shared_read(cta, base - kSharedBase + first / 8 * stride_,
                (end - first - 8) / 8 * stride_ + 8 * row_bytes + columns, actor);
    return;
  }
  const auto read = [&](uint32_t offset, uint32_t bytes) {
    const StaleCells found = shared_read(cta, offset, bytes, actor);
    stale.insert(stale.end(), found.begin(), found.end());
  };
  // Neighbours are read at once: the two halves of a row, or eight rows of 16 bytes.
  uint32_t run = 0;
  uint32_t behind = 0;
  const auto add = [&](uint32_t offset) {
    if (offset != behind) {
      if (behind > run) read(run, behind - run);
      run = offset;
    }
    behind = offset + kChunk;
  };
  if (width_ == 0) {
    for (uint32_t index = 0; index < chunks_; ++index) {
      for (uint32_t row = first; row < end; ++row) add(chunk(row, index));
    }
  } else {
    for (uint32_t row = first; row < end; ++row) {
      const uint32_t low = chunk(row, 0);
      const uint32_t high = chunk(row, 1);
      add(std::min(low, high));
      add(std::max(low, high));
    }
  }
  if (behind > run) read(run, behind - run);
}

// As the async proxy sees it.
void OperandTile::read(const Cta& cta, uint32_t rows, const StaleCells& stale, uint8_t* out) const {
  if (transposed_) {
    read_transposed(cta, rows, stale, out);
    return;
  }
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t index = 0; index < chunks_; ++index, out += kChunk) {
      const uint32_t offset = chunk(row, index);
      if (stale.empty()) {
        std::memcpy(out, cta.shared + offset, kChunk);
      } else {
        shared_async_bytes(cta, offset, kChunk, stale, out);
      }
    }
  }
}

}  // namespace kb::emu
