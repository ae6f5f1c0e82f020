// mma.sync (PTX ISA 9.1, 9.7.14): matrices in the registers of a warp.
#include <cmath>

#include "api_ptx.hpp"
#include "elements.hpp"
#include "runner.hpp"

namespace kb::emu {

namespace {

constexpr uint32_t kMostRows = 16, kColumns = 8, kMostDepth = 32;

struct Lane {
  uint32_t* d;
  const uint32_t *a, *b, *c;
};

struct Place {
  uint32_t row, column;
};

// PTX: 9.7.14.5, fragments of A: registers alternate between the rows of a lane's group and those
// eight below, then go on along K; B is A's transpose without the latter. The elements of a
// register, or of two for f64, are neighbours along K.
Place place_of_a(const MmaForm& form, uint32_t lane, uint32_t element) {
  const uint32_t together = std::max(1u, 4 / element_bytes(form.a));
  const uint32_t unit = element / together, halves = form.m / 8;
  return {lane / 4 + 8 * (unit % halves),
          unit / halves * 4 * together + lane % 4 * together + element % together};
}
Place place_of_b(const MmaForm& form, uint32_t lane, uint32_t element) {
  const uint32_t together = std::max(1u, 4 / element_bytes(form.b));
  return {element / together * 4 * together + lane % 4 * together + element % together, lane / 4};
}
// Fragments of C and D: two neighbours along N, then the row eight below.
Place place_of_d(uint32_t lane, uint32_t element) {
  return {lane / 4 + 8 * (element / 2), 2 * (lane % 4) + element % 2};
}

struct Matrices {
  double a[kMostRows][kMostDepth];
  double b[kMostDepth][kColumns];
};

// Assumption: products are exact and added one after another, in fp32 rounded to nearest for sums
// of f32 and f16, which is rounded once more at the end; PTX leaves the order and the precision of
// intermediate sums open. Sums of f64 are fused, those of s32 exact.
void put_sum(const MmaForm& form, const Matrices& of, Place at, const uint32_t* c, uint32_t* d,
             uint32_t element) {
  const double* row = of.a[at.row];
  if (form.sums == MmaSums::kF64) {
    double sum;
    std::memcpy(&sum, c + 2 * element, sizeof sum);
    for (uint32_t k = 0; k < form.k; ++k) sum = std::fma(row[k], of.b[k][at.column], sum);
    std::memcpy(d + 2 * element, &sum, sizeof sum);
  } else if (form.sums == MmaSums::kS32) {
    int64_t sum = static_cast<int32_t>(c[element]);
    for (uint32_t k = 0; k < form.k; ++k) {
      sum += static_cast<int64_t>(row[k]) * static_cast<int64_t>(of.b[k][at.column]);
    }
    d[element] = static_cast<uint32_t>(s32_of(sum, form.saturates));
  } else {
    const bool half = form.sums == MmaSums::kF16;
    const uint32_t shift = element % 2 * 16;
    float sum = half ? f32_of_f16(static_cast<uint16_t>(c[element / 2] >> shift))
                     : __builtin_bit_cast(float, c[element]);
    for (uint32_t k = 0; k < form.k; ++k) {
      sum = std::fma(static_cast<float>(row[k]), static_cast<float>(of.b[k][at.column]), sum);
    }
    if (!half) {
      d[element] = __builtin_bit_cast(uint32_t, sum);
    } else {
      uint32_t& word = d[element / 2];
      word = (word & ~(0xffffu << shift)) | uint32_t{f16_bits(sum)} << shift;
    }
  }
}

void multiply(const MmaForm& form, Collective& all) {
  Matrices of;
  for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
    const Lane& its = *reinterpret_cast<const Lane*>(all.value[lane]);
    for (uint32_t i = 0; i < form.m * form.k / kWarpSize; ++i) {
      const Place at = place_of_a(form, lane, i);
      const auto* bytes = reinterpret_cast<const std::byte*>(its.a);
      of.a[at.row][at.column] = element_value(form.a, bytes + i * element_bytes(form.a));
    }
    for (uint32_t i = 0; i < form.k * kColumns / kWarpSize; ++i) {
      const Place at = place_of_b(form, lane, i);
      const auto* bytes = reinterpret_cast<const std::byte*>(its.b);
      of.b[at.row][at.column] = element_value(form.b, bytes + i * element_bytes(form.b));
    }
  }
  for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
    const Lane& its = *reinterpret_cast<const Lane*>(all.value[lane]);
    for (uint32_t i = 0; i < form.m * kColumns / kWarpSize; ++i) {
      put_sum(form, of, place_of_d(lane, i), its.c, its.d, i);
    }
  }
}

}  // namespace

// PTX: mma.sync.aligned.m16n8k*.row.col and m8n8k* (9.7.14), but for sparse, 4-bit and 1-bit
// operands and the forms of Volta.
void mma_sync(const MmaForm& form, uint32_t* d, const uint32_t* a, const uint32_t* b,
              const uint32_t* c) {
  const Pc pc = KB_EMU_PC;
  interleave();
  Lane mine{d, a, b, c};
  collective("mma.sync", ~0u, reinterpret_cast<uint64_t>(&mine), pc,
             [&form](Collective& all) { multiply(form, all); });
}

}  // namespace kb::emu
