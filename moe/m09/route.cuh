// Routing and quantization, token by token: CTA c has the tokens c, c + CTAs, ... and a warp
// chooses a token's experts, as kb::step::route_tokens has it.
#pragma once

#include "layout.cuh"
#include "quantize_units.cuh"
#include "route_tokens.cuh"

namespace kb::step {

// Keeps a token's experts together, as TokenRoutes: lanes 0 to 3 write the ids, 4 to 7 the padding,
// 8 to 15 the weights, whole sectors at a time.
struct KeepTokenRoutes {
  const Arguments& args;

  KB_DEVICE void operator()(uint32_t lane, uint32_t token, uint32_t id, float part,
                            float sum) const {
    const uint32_t even = ptx::shfl_sync_idx(id, 2 * lane % 32);
    const uint32_t odd = ptx::shfl_sync_idx(id, (2 * lane + 1) % 32);
    uint32_t word = __builtin_bit_cast(uint32_t, part / sum);
    if (lane < 8) word = lane < 4 ? even | odd << 16 : 0;
    if (lane < sizeof(TokenRoutes) / sizeof(word)) {
      reinterpret_cast<uint32_t*>(args.routes + token)[lane] = word;
    }
  }
};

KB_DEVICE_APART void choose_among_many(const Arguments& args, uint32_t token) {
  float logits[kMaxExperts / 32];
  load_logits(logits, args, token);
  choose_experts(logits, args, KeepTokenRoutes{args}, token);
}

// The first token's logits are loaded before, if the experts are few.
KB_DEVICE void route_tokens(float (&logits)[kLogits], const Arguments& args) {
  const uint32_t stride = kRouteWarps * ptx::cta_count().x;
#pragma unroll 1
  for (uint32_t token = first_token(kRouteWarps); token < args.m; token += stride) {
    if (args.experts > 32 * kLogits) [[unlikely]] {
      choose_among_many(args, token);
      continue;
    }
    choose_experts(logits, args, KeepTokenRoutes{args}, token);
    if (token + stride < args.m) load_logits(logits, args, token + stride);
  }
}

// ---- Quantization, a unit at a time

// The warp calls it; a unit past the last token is no work.
KB_DEVICE void quantize_unit(const Vector& packed, const Arguments& args, Unit unit) {
  float values[8];
  float amax = 0;
#pragma unroll
  for (uint32_t i = 0; i < 8; ++i) {
    values[i] = float_of(bf16{static_cast<uint16_t>(packed.words[i / 2] >> 16 * (i % 2))});
    amax = std::fmax(amax, std::fabs(values[i]));
  }
#pragma unroll
  for (uint32_t mask = kGroup / 2; mask != 0; mask /= 2) {
    amax = std::fmax(amax, ptx::shfl_sync_bfly(amax, mask));
  }
  const float scale = fp8_scale(amax);
  struct alignas(8) Codes {
    e4m3x2 pairs[4];
  } codes;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    codes.pairs[i] =
        ptx::cvt_rn_satfinite_e4m3x2_f32(values[2 * i] / scale, values[2 * i + 1] / scale);
  }
  if (unit.token >= args.m) return;
  const uint64_t place = place_of(args, unit);
  *reinterpret_cast<Codes*>(args.codes + place) = codes;
  const uint32_t copy = ptx::thread_index() % kGroup;
  if (copy < kSector / sizeof(float)) args.scales[place / kFp8Block].copies[copy] = scale;
}

inline constexpr uint32_t kUnitsAhead = 4;  // of a thread that quantizes

KB_DEVICE void quantize_tokens(Vector (&values)[kUnitsAhead], const Arguments& args) {
  Unit unit = first_unit(args);
  Unit ahead = advanced(args, unit, kUnitsAhead * kGroups);
#pragma unroll 1
  while (ptx::vote_sync_any(unit.token < args.m)) {
    quantize_unit(values[0], args, unit);
#pragma unroll
    for (uint32_t i = 0; i + 1 < kUnitsAhead; ++i) values[i] = values[i + 1];
    values[kUnitsAhead - 1] = load_values(args, ahead);
    unit = advanced(args, unit, kGroups);
    ahead = advanced(args, ahead, kGroups);
  }
}

}  // namespace kb::step
