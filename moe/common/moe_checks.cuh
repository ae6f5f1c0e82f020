// What a fused MoE step asks of a call, checked on the host before anything is enqueued.
#pragma once

#include <algorithm>
#include <cmath>

#include "fp8_block.cuh"
#include "fused_moe.cuh"

namespace kb {

namespace detail {

// `what` makes the text: to make those of a right call takes as long as to launch it.
template <typename What>
void require(bool holds, const What& what) {
  if (!holds) throw InvalidCall(what());
}

inline void check_extent(const char* name, int32_t value, int64_t largest) {
  require(value >= 1 && value <= largest, [&] {
    return std::string(name) + " = " + std::to_string(value) + ": expected 1 to " +
           std::to_string(largest);
  });
}

inline void check_blocks(const char* name, int32_t value) {
  require(value >= 1 && value % static_cast<int32_t>(kFp8Block) == 0, [&] {
    return std::string(name) + " = " + std::to_string(value) + ": expected a multiple of " +
           std::to_string(kFp8Block);
  });
}

// Copies and stores of 16 bytes need it.
inline void check_tensor(const char* name, const void* pointer) {
  require(pointer != nullptr && reinterpret_cast<uintptr_t>(pointer) % 16 == 0,
          [&] { return std::string(name) + " is null or not aligned to 16 bytes"; });
}

}  // namespace detail

// Throws InvalidCall with the first limit that the call breaks.
inline void check_call(const FusedMoeCall& call) {
  constexpr int64_t kMaxGridY = 65535;  // CTAs along y: blocks of n
  detail::check_extent("e", call.e, kMaxExperts);
  detail::check_extent("topk", call.topk, std::min<int64_t>(kMaxTopk, call.e));
  detail::check_extent("m", call.m, INT32_MAX / call.topk);
  detail::check_blocks("n", call.n);
  detail::check_extent("n", call.n, kMaxGridY * kFp8Block);
  detail::check_blocks("k", call.k);
  detail::require(std::isfinite(call.softcap) && call.softcap >= 0, [&] {
    return "softcap = " + std::to_string(call.softcap) + ": expected 0 or a bound";
  });
  detail::check_tensor("hidden", call.hidden);
  detail::check_tensor("gating", call.gating);
  detail::check_tensor("weights", call.weights);
  detail::check_tensor("weight_scales", call.weight_scales);
  detail::check_tensor("output", call.output);
}

}  // namespace kb
