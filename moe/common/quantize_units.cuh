// Quantization of a CTA's tokens c, c + CTAs, ... by the warps that multiply. Units of work are the
// tokens' blocks of 128, for 16 threads each. `args` has hidden, codes, scales, m and k.
#pragma once

#include <cmath>

#include "cta_roles.cuh"
#include "ptx/cvt.cuh"
#include "ptx/warp.cuh"
#include "token_data.cuh"

namespace kb {

inline constexpr uint32_t kGroup = 16;  // threads that have a block of 128
inline constexpr uint32_t kGroups = kMultiplyThreads / kGroup;

struct Unit {
  uint32_t token, block;
};

template <typename Arguments>
KB_DEVICE Unit advanced(const Arguments& args, Unit unit, uint32_t units) {
  const uint32_t blocks = args.k / kFp8Block;
  unit.block += units;
  while (unit.block >= blocks) {
    unit.block -= blocks;
    unit.token += ptx::cta_count().x;
  }
  return unit;
}

// The first unit of a thread's group.
template <typename Arguments>
KB_DEVICE Unit first_unit(const Arguments& args) {
  return advanced(args, {ptx::cta_index().x, 0}, ptx::thread_index() / kGroup);
}

// Where a thread's eight values of a unit start.
template <typename Arguments>
KB_DEVICE uint64_t place_of(const Arguments& args, Unit unit) {
  return uint64_t{unit.token} * args.k + unit.block * kFp8Block + ptx::thread_index() % kGroup * 8;
}

template <typename Arguments>
KB_DEVICE Vector load_values(const Arguments& args, Unit unit) {
  if (unit.token >= args.m) return {};
  return *reinterpret_cast<const Vector*>(args.hidden + place_of(args, unit));
}

// value / scale with inverse = 1 / scale: what is left of the value corrects the product, so that
// it rounds as the quotient does, in three instructions.
KB_DEVICE float quotient(float value, float scale, float inverse) {
  const float product = value * inverse;
  return std::fma(std::fma(-product, scale, value), inverse, product);
}

// The warp calls it, for several units in step; one past the last token is no work.
template <uint32_t kCount, typename Arguments>
KB_DEVICE void quantize_units(const Vector (&packed)[kCount], const Arguments& args,
                              const Unit (&units)[kCount]) {
  float values[kCount][8];
  float amax[kCount] = {};
#pragma unroll
  for (uint32_t u = 0; u < kCount; ++u) {
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      values[u][i] = float_of(bf16{static_cast<uint16_t>(packed[u].words[i / 2] >> 16 * (i % 2))});
      amax[u] = std::fmax(amax[u], std::fabs(values[u][i]));
    }
  }
#pragma unroll
  for (uint32_t mask = kGroup / 2; mask != 0; mask /= 2) {
#pragma unroll
    for (float& largest : amax) largest = std::fmax(largest, ptx::shfl_sync_bfly(largest, mask));
  }
#pragma unroll
  for (uint32_t u = 0; u < kCount; ++u) {
    const float scale = fp8_scale(amax[u]);
    const float inverse = 1 / scale;
    struct alignas(8) Codes {
      e4m3x2 pairs[4];
    } codes;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      codes.pairs[i] =
          ptx::cvt_rn_satfinite_e4m3x2_f32(quotient(values[u][2 * i], scale, inverse),
                                           quotient(values[u][2 * i + 1], scale, inverse));
    }
    if (units[u].token >= args.m) continue;
    const uint64_t place = place_of(args, units[u]);
    *reinterpret_cast<Codes*>(args.codes + place) = codes;
    const uint32_t copy = ptx::thread_index() % kGroup;
    if (copy < kSector / sizeof(float)) args.scales[place / kFp8Block].copies[copy] = scale;
  }
}

// The first units, whose values a thread asks for before anything else; as many are on their way at
// a time.
template <uint32_t kUnitsAhead, typename Arguments>
KB_DEVICE void load_first_units(Vector (&values)[kUnitsAhead], const Arguments& args) {
  Unit unit = first_unit(args);
#pragma unroll
  for (Vector& each : values) {
    each = load_values(args, unit);
    unit = advanced(args, unit, kGroups);
  }
}

// One unit at a time.
template <uint32_t kUnitsAhead, typename Arguments>
KB_DEVICE void quantize_tokens(Vector (&values)[kUnitsAhead], const Arguments& args) {
  Unit unit = first_unit(args);
  Unit ahead = advanced(args, unit, kUnitsAhead * kGroups);
#pragma unroll 1
  while (ptx::vote_sync_any(unit.token < args.m)) {
    quantize_units<1>({values[0]}, args, {unit});
#pragma unroll
    for (uint32_t i = 0; i + 1 < kUnitsAhead; ++i) values[i] = values[i + 1];
    values[kUnitsAhead - 1] = load_values(args, ahead);
    unit = advanced(args, unit, kGroups);
    ahead = advanced(args, ahead, kGroups);
  }
}

// For many units of a thread: kAtOnce at a time, none of which waits for the load of another.
template <uint32_t kAtOnce, uint32_t kUnitsAhead, typename Arguments>
KB_DEVICE void quantize_in_batches(Vector (&values)[kUnitsAhead], const Arguments& args) {
  Unit unit = first_unit(args);
  Unit ahead = advanced(args, unit, kUnitsAhead * kGroups);
#pragma unroll 1
  while (ptx::vote_sync_any(unit.token < args.m)) {
#pragma unroll
    for (uint32_t first = 0; first < kUnitsAhead; first += kAtOnce) {
      Vector packed[kAtOnce];
      Unit units[kAtOnce];
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        packed[i] = values[first + i];
        units[i] = unit;
        unit = advanced(args, unit, kGroups);
      }
      quantize_units(packed, args, units);
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        values[first + i] = load_values(args, ahead);
        ahead = advanced(args, ahead, kGroups);
      }
    }
  }
}

}  // namespace kb
