// Routing and quantization, token by token: CTA c has the tokens c, c + CTAs, ...
//
// A warp chooses a token's experts: the warps that gather first, those that multiply where a CTA
// has more tokens. The latter quantize, 16 threads a block of 128, and set the tokens' outputs to
// zero.
//
// The kernels' Arguments differ, and what they keep of a token's experts: `Keep` has the number of
// warps that route, and a call operator for a warp whose lane s < topk has the s-th expert and its
// weight.
#pragma once

#include <cmath>

#include "layout.cuh"
#include "ptx/cvt.cuh"
#include "ptx/warp.cuh"
#include "top_k.cuh"
#include "warp_values.cuh"

namespace kb::step {

inline constexpr uint32_t kLogits = 8;  // of a lane, for up to 256 experts
inline constexpr uint32_t kGroup = 16;  // threads that have a block of 128
inline constexpr uint32_t kGroups = kMultiplyThreads / kGroup;

// ---- Experts

// Where the code of a kernel is not in the caches, its threads wait for memory at every line of it:
// what is rare stands apart from what every call runs through.
KB_DEVICE_APART float capped(float logit, float softcap) {
  return softcap * std::tanh(logit / softcap);
}
KB_DEVICE_APART float exp_apart(float value) {
  return std::exp(value);
}

// A lane has the logits of experts lane, lane + 32, ...
template <uint32_t kCount, typename Arguments>
KB_DEVICE void load_logits(float (&logits)[kCount], const Arguments& args, uint32_t token) {
  const float* row = args.gating + uint64_t{token} * args.experts + ptx::lane_index();
#pragma unroll
  for (uint32_t i = 0; i < kCount; ++i) {
    if (i * 32 + ptx::lane_index() < args.experts) logits[i] = row[i * 32];
  }
}

// As kb::take_largest, by a shorter chain: only where lanes tie is the index sought among all.
template <uint32_t kCount>
KB_DEVICE TopLogit take_next(uint32_t (&keys)[kCount]) {
  const uint32_t lane = ptx::lane_index();
  uint32_t best = keys[0];
#pragma unroll
  for (uint32_t i = 1; i < kCount; ++i) best = keys[i] > best ? keys[i] : best;
  uint32_t slot = 0;
#pragma unroll
  for (uint32_t i = kCount - 1; i > 0; --i) {
    if (keys[i] == best) slot = i;
  }
  if (keys[0] == best) slot = 0;
  const uint32_t mine = slot * 32 + lane;
  const uint32_t largest = ptx::redux_sync_max(best);
  const uint32_t owners = ptx::vote_sync_ballot(best == largest);
  uint32_t index;
  if ((owners & (owners - 1)) == 0) {
    index = ptx::shfl_sync_idx(mine, static_cast<uint32_t>(__builtin_popcount(owners - 1)));
  } else {
    index = ~ptx::redux_sync_max(best == largest ? ~mine : 0);
  }
#pragma unroll
  for (uint32_t i = 0; i < kCount; ++i) {
    if (i * 32 + lane == index) keys[i] = 0;
  }
  return {index, ordered_float(largest)};
}

template <uint32_t kCount, typename Arguments, typename Keep>
KB_DEVICE void choose_experts(float (&logits)[kCount], const Arguments& args, const Keep& keep,
                              uint32_t token) {
  const uint32_t lane = ptx::lane_index();
  if (args.softcap > 0) [[unlikely]] {
#pragma unroll
    for (uint32_t i = 0; i < kCount; ++i) logits[i] = capped(logits[i], args.softcap);
  }
  uint32_t keys[kCount];
  uint32_t left[kCount];
  bool nan = false;
#pragma unroll
  for (uint32_t i = 0; i < kCount; ++i) {
    const bool exists = i * 32 + lane < args.experts;
    keys[i] = exists ? ordered_bits(logits[i]) : 0;
    left[i] = keys[i];
    nan = nan || (exists && std::isnan(logits[i]));
  }
  // Lane s, and lane s + 8 too, keeps the s-th largest.
  uint32_t id = kNoExpert;
  float logit = -INFINITY;
  float largest = 0;
#pragma unroll 1
  for (uint32_t s = 0; s < args.topk; ++s) {
    const TopLogit top = take_next(left);
    if (s == 0) largest = top.logit;
    if (lane % kMaxTopk == s) {
      id = top.index;
      logit = top.logit;
    }
  }
  const float part = lane % kMaxTopk < args.topk ? std::exp(logit - largest) : 0;
  float sum = lane < kMaxTopk ? part : 0;
  if (!args.renormalize) [[unlikely]] {  // over all experts, of whom only the chosen ones count
    sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < kCount; ++i) {
      if (keys[i] != 0) sum += exp_apart(ordered_float(keys[i]) - largest);
    }
  }
  sum = sum_of_warp(sum);
  if (ptx::vote_sync_any(nan)) sum = NAN;
  keep(token, id, part / sum);
}

// The first token whose experts the warp chooses: those that multiply come last.
template <typename Keep>
KB_DEVICE uint32_t first_token() {
  const uint32_t warp = ptx::warp_index();
  const uint32_t turn = warp < kMultiplyWarps ? Keep::kWarps - 1 - warp : warp - kGatherWarp;
  return ptx::cta_index().x + turn * ptx::cta_count().x;
}

template <typename Arguments, typename Keep>
KB_DEVICE_APART void choose_among_many(const Arguments& args, Keep keep, uint32_t token) {
  float logits[kMaxExperts / 32];
  load_logits(logits, args, token);
  choose_experts(logits, args, keep, token);
}

// The first token's logits are loaded before, if the experts are few.
template <typename Arguments, typename Keep>
KB_DEVICE void route_tokens(float (&logits)[kLogits], const Arguments& args, const Keep& keep) {
  const uint32_t stride = Keep::kWarps * ptx::cta_count().x;
#pragma unroll 1
  for (uint32_t token = first_token<Keep>(); token < args.m; token += stride) {
    if (args.experts > 32 * kLogits) [[unlikely]] {
      choose_among_many(args, keep, token);
      continue;
    }
    choose_experts(logits, args, keep, token);
    if (token + stride < args.m) load_logits(logits, args, token + stride);
  }
}

// ---- Quantization: units of work are the blocks of the CTA's tokens.

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

template <typename Arguments>
KB_DEVICE void clear_outputs(const Arguments& args) {
  const uint32_t ctas = ptx::cta_count().x;
  const uint32_t vectors = args.n * sizeof(float) / sizeof(Vector);
  for (uint32_t token = ptx::cta_index().x; token < args.m; token += ctas) {
    auto* output = reinterpret_cast<Vector*>(args.output + uint64_t{token} * args.n);
    for (uint32_t i = ptx::thread_index(); i < vectors; i += kMultiplyThreads) output[i] = {};
  }
}

}  // namespace kb::step
