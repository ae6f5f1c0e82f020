// Scale factors of block-scaled products in tensor memory (PTX ISA 9.1, 9.7.16.10.7).
#include "tcgen05_scales.hpp"

#include <cstring>

#include "api_ptx.hpp"

namespace kb::emu {

namespace {
constexpr uint32_t kScaleId = 1 << 14;  // bit 30 of an address, of its lane
}

// Assumption: lanes 0 … 31 are the ones read; check_replicas makes sure that it does not matter.
void read_scales(const TmemCells& cells, const ScaleColumns& scales, uint32_t rows, uint8_t* out) {
  const bool exchanged = broken(Fact::kScaleRolesExchanged);
  const bool reversed = broken(scales.b ? Fact::kScaleBBytesReversed : Fact::kScaleABytesReversed);
  const uint32_t step = scales.b && broken(Fact::kScaleBColumnStep) ? 2 : 1;
  const uint32_t base =
      scales.b && broken(Fact::kScaleBOffsetIgnored) ? scales.column / 4 * 4 : scales.column;
  for (uint32_t row = 0; row < rows; ++row) {
    uint32_t lane = row % 32;
    uint32_t column = row / 32;
    if (exchanged) {
      lane = row % 128 / 4;
      column = row / 128 * 4 + row % 4;
    }
    uint32_t word = cells.at[lane][(base + column * step) % kTmemColumns];
    if (reversed) word = __builtin_bswap32(word);
    word >>= 8 * scales.first;
    std::memcpy(out + row * scales.count, &word, scales.count);
  }
}

// Which copy a part of the hardware reads is not documented.
void check_replicas(const TmemCells& cells, const ScaleColumns& scales, uint32_t rows, Pc pc) {
  const uint32_t taken = (scales.count == 4 ? ~0u : (1u << 8 * scales.count) - 1)
                         << 8 * scales.first;
  for (uint32_t row = 0; row < rows; ++row) {
    const uint32_t column = scales.column + row / 32;
    const uint32_t first = cells.at[row % 32][column];
    for (uint32_t lane = row % 32 + 32; lane < kTmemLanes; lane += 32) {
      if (((cells.at[lane][column] ^ first) & taken) == 0) continue;
      report({.kind = Class::kDescriptor,
              .pc = pc,
              .tmem_column = column,
              .text = std::string("scale factors of ") + (scales.b ? "B" : "A") +
                      " differ between lanes " + std::to_string(row % 32) + " and " +
                      std::to_string(lane) + ": all four copies have to be there"});
      return;
    }
  }
}

// PTX: 9.7.16: taddr of scale-A and scale-B lie in allocated columns. Overlap is undefined.
// Assumption: in translated PTX the two highest bits of such an address are not read: CUTLASS keeps
// the scales' ID of the instruction descriptor (9.7.16.10.7) there. It is formal.
void check_scale_places(const ScalePlaces& places, uint32_t d_column, uint32_t d_columns, Cta& cta,
                        Pc pc) {
  const auto check = [&](const TmemAddress& at, uint32_t count, const char* what) {
    if (at.lane != 0) {
      Finding finding{.kind = Class::kTmemBounds,
                      .pc = pc,
                      .tmem_column = at.column,
                      .formal = runs_ptx() && at.lane % kScaleId == 0,
                      .text = std::string(what) + " starts at lane " + std::to_string(at.lane) +
                              ": the lane is 0"};
      if (!finding.formal) fail(std::move(finding));
      report(std::move(finding));
    }
    tmem_columns(cta, at.column, count, pc, what);
    if (at.column < d_column + d_columns && d_column < at.column + count) {
      fail({.kind = Class::kTmemBounds,
            .pc = pc,
            .tmem_column = at.column,
            .text = std::string(what) + " uses columns of its accumulator"});
    }
  };
  check(places.a, scale_columns(kTmemLanes), "tcgen05.mma, as scale factors of A,");
  check(places.b, places.columns_of_b, "tcgen05.mma, as scale factors of B,");
}

}  // namespace kb::emu
