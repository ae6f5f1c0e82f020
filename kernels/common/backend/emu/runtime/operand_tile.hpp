// A tile in shared memory as a matrix descriptor gives it: PTX ISA 9.1, 9.7.15 and 9.7.16.
#pragma once

#include "core.hpp"

namespace kb::emu {

class OperandTile {
 public:
  static constexpr uint32_t kRowBytes = 32;  // what one operation reads of a row
  // Bits 48:46 of a descriptor.
  enum class User : uint32_t { kWgmma = 0, kTcgen05 = 1 };

  // Takes a descriptor apart; a finding that ends the launch for fields that the hardware does not
  // take. `operand` names it. `transposed`: 16-bit elements contiguous along M or N, not along K.
  OperandTile(uint64_t descriptor, User user, Pc pc, const char* operand, bool transposed = false);
  // The same for rows of 16 bytes, of which the second half does not exist.
  static OperandTile scales(uint64_t descriptor, Pc pc, const char* operand);

  // Checks that rows [first, end) lie inside the CTA's shared memory and, when checking, that the
  // actor may read them. Adds what the async proxy does not see to `stale`. Multiples of 8.
  void check(Cta& cta, uint32_t first, uint32_t end, const Actor& actor, StaleCells& stale) const;
  // Copies the first rows, one after another, as the async proxy sees them now.
  void read(const Cta& cta, uint32_t rows, const StaleCells& stale, uint8_t* out) const;

 private:
  // What may explain wrong results: the box that lies there has another swizzle.
  void note_swizzle(const Cta& cta, const Actor& actor) const;
  // What is said of a start that is none of the swizzle's.
  std::string inside_a_pattern(uint32_t pattern) const;
  // Offset in shared memory of 16 bytes of a row.
  uint32_t chunk(uint32_t row, uint32_t index) const;
  // Of a transposed tile: of eight rows from `row` on, at one k.
  uint32_t eight_rows(uint32_t row, uint32_t k) const;
  uint32_t swizzled(uint32_t linear) const;
  void check_transposed(Cta& cta, uint32_t first, uint32_t end, const Actor& actor,
                        StaleCells& stale) const;
  void read_transposed(const Cta& cta, uint32_t rows, const StaleCells& stale, uint8_t* out) const;

  uint32_t start_;
  uint32_t leading_;
  uint32_t stride_;
  uint32_t width_;  // of the swizzle: 0, 32, 64, 128
  uint32_t chunks_ = 2;
  bool transposed_;
};

}  // namespace kb::emu
