// A K-major tile in shared memory as a matrix descriptor gives it: PTX ISA 9.1, 9.7.15 and 9.7.16.
#pragma once

#include "core.hpp"

namespace kb::emu {

class OperandTile {
 public:
  static constexpr uint32_t kRowBytes = 32;  // what one operation reads of a row
  // Bits 48:46 of a descriptor.
  enum class User : uint32_t { kWgmma = 0, kTcgen05 = 1 };

  // Takes a descriptor apart; a finding that ends the launch for fields that the hardware does not
  // take. `operand` names it.
  OperandTile(uint64_t descriptor, User user, Pc pc, const char* operand);
  // The same for rows of 16 bytes, of which the second half does not exist.
  static OperandTile scales(uint64_t descriptor, Pc pc, const char* operand);

  // Checks that rows [first, end) lie inside the CTA's shared memory and, when checking, that the
  // actor may read them. Adds what the async proxy does not see to `stale`. Multiples of 8.
  void check(Cta& cta, uint32_t first, uint32_t end, const Actor& actor, StaleCells& stale) const;
  // Copies the first rows, one after another, as the async proxy sees them now.
  void read(const Cta& cta, uint32_t rows, const StaleCells& stale, uint8_t* out) const;

 private:
  // Offset in shared memory of 16 bytes of a row.
  uint32_t chunk(uint32_t row, uint32_t index) const;

  uint32_t start_;
  uint32_t leading_;
  uint32_t stride_;
  uint32_t width_;  // of the swizzle: 0, 32, 64, 128
  uint32_t chunks_ = 2;
};

}  // namespace kb::emu
