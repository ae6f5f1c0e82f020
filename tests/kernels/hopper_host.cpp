// What tests of the Hopper steps call on the host: dequantization as the emulator computes it, and
// the packing of tiles.
#include "fp4_half.cuh"
#include "splitting.cuh"

#define TEST_EXPORT extern "C" __attribute__((visibility("default")))

// Eight codes times one scale, as fp16 bits in the order of the codes.
TEST_EXPORT void dequantize(uint32_t codes, uint8_t scale, uint16_t* out) {
  const uint32_t scales = kb::fp4_scales({.lo = {scale}, .hi = {0}});
  const kb::Fp4Halves halves = kb::dequantize_fp4(codes, kb::twice_low(scales));
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      out[4 * i + 2 * j] = static_cast<uint16_t>(halves.even[i] >> 16 * j);
      out[4 * i + 2 * j + 1] = static_cast<uint16_t>(halves.odd[i] >> 16 * j);
    }
  }
}

// Rows of out: CTA, launch, group, row block, first token, tokens, first pair, pairs, slot, added;
// in the order in which a CTA runs them. Returns their number, or -1 if it is above `limit`.
TEST_EXPORT int32_t pack(const uint32_t* extents, uint32_t groups, uint32_t ctas, uint32_t limit,
                         uint32_t* out) {
  std::vector<kb::packing::Extents> all(groups);
  for (uint32_t g = 0; g < groups; ++g) {
    all[g] = {extents[3 * g], extents[3 * g + 1], extents[3 * g + 2]};
  }
  uint32_t count = 0;
  uint32_t launch = 0;
  for (const kb::PartList& list : kb::splitting::lists_of(kb::splitting::pack(all, ctas))) {
    for (uint32_t cta = 0; cta < ctas; ++cta) {
      for (uint32_t i = list.first[cta]; i < list.first[cta + 1]; ++i) {
        if (count == limit) return -1;
        const kb::Part& part = list.parts[i];
        const uint32_t row[] = {cta,
                                launch,
                                part.tile.group,
                                part.tile.row_block,
                                part.tile.token,
                                part.tile.columns(),
                                part.first_pair,
                                part.pairs,
                                part.slot,
                                part.added};
        std::copy(std::begin(row), std::end(row), out + 10 * count);
        ++count;
      }
    }
    ++launch;
  }
  return static_cast<int32_t>(count);
}
