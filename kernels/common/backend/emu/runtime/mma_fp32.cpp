// tcgen05.mma.kind::mxf4nvf4 (PTX ISA 9.1, 9.7.16.10) in plain fp32: e2m1 codes times their scales,
// every product exact, added in order of k. PTX leaves order and rounding open; where the sums are
// exact this is the hardware's result, bit by bit. Vectors of the host's width.
#include <algorithm>
#include <cstring>

#include "facts.hpp"
#include "mma.hpp"

namespace kb::emu {

namespace {

// A block of kRows x (kVectors vectors) of D stays in registers.
#if defined(__AVX512F__)
inline constexpr uint32_t kLanes = 16;
inline constexpr uint32_t kRows = 8;
inline constexpr uint32_t kVectors = 2;
#elif defined(__AVX__)
inline constexpr uint32_t kLanes = 8;
inline constexpr uint32_t kRows = 4;
inline constexpr uint32_t kVectors = 2;
#else
inline constexpr uint32_t kLanes = 4;
inline constexpr uint32_t kRows = 4;
inline constexpr uint32_t kVectors = 4;
#endif
inline constexpr uint32_t kPanel = kLanes * kVectors;
using Vector = float __attribute__((vector_size(kLanes * sizeof(float))));
using Words = uint32_t __attribute__((vector_size(kLanes * sizeof(uint32_t))));
using Bytes = uint8_t __attribute__((vector_size(kLanes)));

// PTX: 5.2, E2M1: sign, two exponent bits, one of mantissa: 0, 0.5, 1, 1.5, 2, 3, 4, 6.
// The value of e2m1 codes: with the exponent's two bits nonzero it is a float whose exponent and
// first mantissa bit are the code's; 0 and 1 are 0 and 0.5.
template <bool kSevenIsFive>
Vector e2m1_values(Words codes) {
  const Words magnitude = codes & 7;
  const Words normal = (magnitude << 22) + (126u << 23);
  const Words small = (0 - magnitude) & (126u << 23);
  const auto is_small = __builtin_bit_cast(Words, magnitude < 2);
  Words bits = (is_small & small) | (~is_small & normal);
  if (kSevenIsFive) bits -= __builtin_bit_cast(Words, magnitude == 7) & (1u << 21);
  return __builtin_bit_cast(Vector, bits | (codes & 8) << 28);
}

Words load_codes(const uint8_t* bytes) {
  Bytes loaded;
  std::memcpy(&loaded, bytes, sizeof loaded);
  return __builtin_convertvector(loaded, Words);
}

// PTX: 5.2, UE4M3: E4M3 without a sign; 0x7f is NaN. The top bit is ignored.
struct ScaleTable {
  float value[256];
  explicit constexpr ScaleTable() : value() {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t exponent = byte >> 3 & 15;
      const uint32_t mantissa = byte & 7;
      float scale = static_cast<float>(exponent == 0 ? mantissa : mantissa + 8) / 512;
      for (uint32_t i = 1; i < exponent; ++i) scale *= 2;
      value[byte] = (byte & 0x7f) == 0x7f ? __builtin_nanf("") : scale;
    }
  }
};
constexpr ScaleTable kScales;

// The instruction descriptor's negation of A or B is put into the scale: a sign more.
float scale_value(uint8_t byte, bool negate, bool doubled) {
  const float scale = kScales.value[byte] * (doubled ? 2 : 1);
  return negate ? -scale : scale;
}

struct alignas(64) Decoded {
  float a[kTmemLanes][2][kMmaRowBytes];  // even k, odd k
  float panel[kMmaK][kPanel];
};

// `values` and `scales` hold one vector after another.
Vector scaled(Vector values, const float* scales) {
  Vector factor;
  std::memcpy(&factor, scales, sizeof factor);
  return values * factor;
}

void store(float* to, Vector values) {
  std::memcpy(to, &values, sizeof values);
}

// A row at a time, even and odd k apart: the codes of a byte are neighbours along k.
template <bool kSevenIsFive>
void decode_a(const MmaTile& tile, bool doubled, Decoded& out) {
  for (uint32_t m = 0; m < kTmemLanes; ++m) {
    float scales[kMmaRowBytes];
    for (uint32_t block = 0; block < kMmaBlocks; ++block) {
      const float scale = scale_value(tile.scales_a[m][block], tile.negate_a, doubled);
      std::fill_n(scales + block * 8, 8, scale);
    }
    for (uint32_t i = 0; i < kMmaRowBytes; i += kLanes) {
      const Words codes = load_codes(tile.a[m] + i);
      store(out.a[m][0] + i, scaled(e2m1_values<kSevenIsFive>(codes), scales + i));
      store(out.a[m][1] + i, scaled(e2m1_values<kSevenIsFive>(codes >> 4), scales + i));
    }
  }
}

// Columns [first, first + count) of B with k as the row; columns past `count` are zero.
template <bool kSevenIsFive>
void decode_panel(const MmaTile& tile, bool doubled, uint32_t first, uint32_t count, Decoded& out) {
  uint8_t bytes[kMmaRowBytes][kPanel] = {};
  float scales[kMmaBlocks][kPanel] = {};
  for (uint32_t n = 0; n < count; ++n) {
    for (uint32_t i = 0; i < kMmaRowBytes; ++i) bytes[i][n] = tile.b[first + n][i];
    for (uint32_t block = 0; block < kMmaBlocks; ++block) {
      scales[block][n] = scale_value(tile.scales_b[first + n][block], tile.negate_b, doubled);
    }
  }
  for (uint32_t i = 0; i < kMmaRowBytes; ++i) {
    for (uint32_t n = 0; n < kPanel; n += kLanes) {
      const Words codes = load_codes(bytes[i] + n);
      const float* scale = scales[i / 8] + n;
      store(out.panel[2 * i] + n, scaled(e2m1_values<kSevenIsFive>(codes), scale));
      store(out.panel[2 * i + 1] + n, scaled(e2m1_values<kSevenIsFive>(codes >> 4), scale));
    }
  }
}

// kRows rows of D from `d` on times one panel; `count` columns are stored.
void multiply(const float (*a)[2][kMmaRowBytes], const float (*panel)[kPanel], uint32_t count,
              bool accumulate, uint32_t* d) {
  Vector sum[kRows][kVectors];
  for (uint32_t m = 0; m < kRows; ++m) {
    float old[kPanel] = {};
    if (accumulate) {
      if (count == kPanel) {
        std::memcpy(old, d + m * kTmemColumns, sizeof old);
      } else {
        std::memcpy(old, d + m * kTmemColumns, count * sizeof(float));
      }
    }
    std::memcpy(sum[m], old, sizeof old);
  }
#pragma GCC unroll 2
  for (uint32_t k = 0; k < kMmaK; ++k) {
    Vector b[kVectors];
    std::memcpy(b, panel[k], sizeof b);
#pragma GCC unroll 8
    for (uint32_t m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
      for (uint32_t v = 0; v < kVectors; ++v) sum[m][v] += a[m][k % 2][k / 2] * b[v];
    }
  }
  for (uint32_t m = 0; m < kRows; ++m) {
    if (count == kPanel) {
      std::memcpy(d + m * kTmemColumns, sum[m], kPanel * sizeof(float));
    } else {
      std::memcpy(d + m * kTmemColumns, sum[m], count * sizeof(float));
    }
  }
}

// Zero times infinity is NaN: skipping zeros needs finite operands.
bool all_finite(const uint8_t (*scales)[kMmaBlocks], uint32_t rows) {
  const uint8_t* bytes = scales[0];
  uint32_t found = 0;
  for (uint32_t i = 0; i < rows * kMmaBlocks; ++i) found += (bytes[i] & 0x7f) == 0x7f;
  return found == 0;
}

// Whether rows hold nothing but +-0, as those do that a tensor copy fills beyond a tensor's end.
bool all_zero(const uint8_t (*rows)[kMmaRowBytes], uint32_t count) {
  const uint8_t* bytes = rows[0];
  uint8_t found = 0;
  for (uint32_t i = 0; i < count * kMmaRowBytes; ++i) found |= bytes[i] & 0x77;
  return found == 0;
}

// Panels of columns, decoded once, times blocks of rows. Products of zeros are skipped.
template <bool kSevenIsFive>
void run(const MmaTile& tile, uint32_t* d) {
  thread_local Decoded decoded;
  const bool doubled = broken(Fact::kScaleBias);
  decode_a<kSevenIsFive>(tile, doubled, decoded);
  // Products of zeros need no arithmetic, unless a scale is NaN.
  // Tiles that a tensor copy has filled with zeros are common: the last of a group's rows.
  const bool sparse =
      all_finite(tile.scales_a, kTmemLanes) && all_finite(tile.scales_b, tile.columns);
  bool zero_rows[kTmemLanes / kRows];
  for (uint32_t i = 0; i < kTmemLanes / kRows; ++i) {
    zero_rows[i] = sparse && all_zero(tile.a + i * kRows, kRows);
  }
  for (uint32_t first = 0; first < tile.columns; first += kPanel) {
    const uint32_t left = tile.columns - first;
    const uint32_t count = left < kPanel ? left : kPanel;
    const bool zero_panel = sparse && all_zero(tile.b + first, count);
    if (!zero_panel) decode_panel<kSevenIsFive>(tile, doubled, first, count, decoded);
    for (uint32_t m = 0; m < kTmemLanes; m += kRows) {
      uint32_t* block = d + m * kTmemColumns + first;
      if (!zero_panel && !zero_rows[m / kRows]) {
        multiply(decoded.a + m, decoded.panel, count, tile.accumulate, block);
      } else if (!tile.accumulate) {
        for (uint32_t row = 0; row < kRows; ++row)
          std::fill_n(block + row * kTmemColumns, count, 0);
      }
    }
  }
}

}  // namespace

void mma_fp32(const MmaTile& tile, uint32_t* d) {
  if (broken(Fact::kCode7Is5)) {
    run<true>(tile, d);
  } else {
    run<false>(tile, d);
  }
}

}  // namespace kb::emu
