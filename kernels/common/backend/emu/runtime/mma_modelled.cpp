// tcgen05.mma.kind::mxf4nvf4 (PTX ISA 9.1, 9.7.16.10) with the rounding that was measured on
// hardware, of which PTX says nothing: terms are aligned and cut, never rounded.
#include <algorithm>

#include "facts.hpp"
#include "mma.hpp"
#include "truncate.hpp"

namespace kb::emu {

namespace {

// A term keeps all of its eight fractional bits down to 2^-27 of the largest one.
constexpr int kFraction = 35;  // fractional bits that the aligned terms keep

// An e2m1 code in halves.
constexpr int8_t kHalves[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// mantissa / 8 · 2^exponent, not normalized; zero has the least exponent.
struct Scale {
  int32_t mantissa;
  int32_t exponent;
  bool nan;
};

// PTX: 5.2: UE4M3 as above, UE8M0: a power of two 2^(byte - 127), 0xff NaN.
Scale scale_of(uint8_t byte, bool ue8m0, bool doubled) {
  Scale scale{8, byte - 127, byte == 0xff};
  if (!ue8m0) {
    const int exponent = byte >> 3 & 15;
    const int mantissa = byte & 7;
    scale.nan = (byte & 0x7f) == 0x7f;
    if (exponent > 0) {
      scale.mantissa = 8 + mantissa;
      scale.exponent = exponent - 7;
    } else {
      scale.mantissa = mantissa;
      scale.exponent = mantissa > 0 ? -6 : kLeastExponent;
    }
  }
  if (doubled && scale.mantissa > 0) ++scale.exponent;
  return scale;
}

// One element: the old bits of D, the blocks' sums in quarters and their scales.
// The terms: each block's sum of products, exact as an integer of quarters, times its two scales;
// and the old value.
uint32_t element(uint32_t old, const int32_t (&quarters)[kMmaBlocks],
                 const Scale (&scales_a)[kMmaBlocks], const Scale (&scales_b)[kMmaBlocks]) {
  const uint32_t old_exponent = old >> 23 & 255;
  int64_t significand = old & 0x7fffff;
  int exponent = kLeastExponent;
  if (old_exponent > 0) {
    significand |= 0x800000;
    exponent = static_cast<int>(old_exponent) - 127;
  }
  if (old >> 31 != 0) significand = -significand;
  int64_t term[kMmaBlocks];
  int term_exponent[kMmaBlocks];
  int largest = exponent;
  for (uint32_t block = 0; block < kMmaBlocks; ++block) {
    const Scale& a = scales_a[block];
    const Scale& b = scales_b[block];
    if (a.nan || b.nan) return kCanonicalNan;
    term[block] = int64_t{quarters[block]} * a.mantissa * b.mantissa;
    term_exponent[block] = a.exponent + b.exponent;
    largest = std::max(largest, term_exponent[block]);
  }
  // After the scales: a NaN among them wins over an infinite old value.
  if (old_exponent == 255) return (old & 0x7fffff) != 0 ? kCanonicalNan : old;
  // All five terms in units of 2^(largest - 35); what is below that is cut before it is added.
  int64_t sum = shifted(significand, kFraction - 23 - (largest - exponent));
  for (uint32_t block = 0; block < kMmaBlocks; ++block) {
    sum += shifted(term[block], kFraction - 8 - (largest - term_exponent[block]));
  }
  return truncated(sum, largest - kFraction);
}

struct Decoded {
  int8_t a[kTmemLanes][kMmaK];
  int8_t b[kMmaK][kMmaMaxColumns];  // k is the row
  Scale scales_a[kTmemLanes][kMmaBlocks];
  Scale scales_b[kMmaMaxColumns][kMmaBlocks];
};

int8_t halves(uint32_t code, bool negate) {
  int8_t value = kHalves[code & 15];
  if (broken(Fact::kCode7Is5) && (code & 7) == 7) value = static_cast<int8_t>(value < 0 ? -10 : 10);
  return negate ? static_cast<int8_t>(-value) : value;
}

void decode(const MmaTile& tile, Decoded& out) {
  const bool doubled = broken(Fact::kScaleBias);
  for (uint32_t m = 0; m < kTmemLanes; ++m) {
    for (uint32_t k = 0; k < kMmaK; ++k) {
      out.a[m][k] = halves(tile.a[m][k / 2] >> 4 * (k % 2), tile.negate_a);
    }
    for (uint32_t block = 0; block < kMmaBlocks; ++block) {
      out.scales_a[m][block] = scale_of(tile.scales_a[m][block], tile.ue8m0, doubled);
    }
  }
  for (uint32_t n = 0; n < tile.columns; ++n) {
    for (uint32_t k = 0; k < kMmaK; ++k) {
      out.b[k][n] = halves(tile.b[n][k / 2] >> 4 * (k % 2), tile.negate_b);
    }
    for (uint32_t block = 0; block < kMmaBlocks; ++block) {
      out.scales_b[n][block] = scale_of(tile.scales_b[n][block], tile.ue8m0, doubled);
    }
  }
}

}  // namespace

// Each element alone: the hardware's model adds a row's four blocks and the old value at once.
// Assumption: a NaN scale makes the element NaN whatever the codes; an infinite old value stays
// unless something is NaN.
void mma_modelled(const MmaTile& tile, uint32_t* d) {
  thread_local Decoded decoded;
  decode(tile, decoded);
  for (uint32_t m = 0; m < kTmemLanes; ++m) {
    // Codes in halves: a product is a number of quarters, 16 of them at most 16 · 12 · 12.
    int16_t sums[kMmaBlocks][kMmaMaxColumns] = {};  // at most 2304 in magnitude
    for (uint32_t k = 0; k < kMmaK; ++k) {
      const int16_t a = decoded.a[m][k];
      int16_t* sum = sums[k / kMmaBlock];
      const int8_t* b = decoded.b[k];
      for (uint32_t n = 0; n < tile.columns; ++n) sum[n] = static_cast<int16_t>(sum[n] + a * b[n]);
    }
    uint32_t* row = d + m * kTmemColumns;
    for (uint32_t n = 0; n < tile.columns; ++n) {
      int32_t quarters[kMmaBlocks];
      for (uint32_t block = 0; block < kMmaBlocks; ++block) quarters[block] = sums[block][n];
      const uint32_t old = tile.accumulate ? row[n] : 0;
      row[n] = element(old, quarters, decoded.scales_a[m], decoded.scales_b[n]);
    }
  }
}

}  // namespace kb::emu
