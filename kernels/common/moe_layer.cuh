// The interface of a MoE layer step: quantize tokens to FP8 by block, multiply with their experts'
// gate and up matrices, silu(gate) * up, quantize, multiply with the down matrix, add up weighted.
#pragma once

#include "entry.cuh"

namespace kb {

// One call; pointers are to device memory, dense, row-major.
//   m, h, i         tokens, their hidden and their intermediate values; h and i multiples of 128
//   e, topk         experts, and how many of them a token goes to
//   hidden          bf16 [m, h]
//   ids             [m, topk]: experts; what is not in 0 … e - 1 is none and counts for nothing
//   expert_weights  float [m, topk]
//   w13             e4m3 [e, 2 i, h]: rows of the gate, then rows of up
//   w13_scales      float [e, 2 i / 128, h / 128]
//   w2              e4m3 [e, h, i]
//   w2_scales       float [e, h / 128, i / 128]
//   output          float [m, h], to be written
//   stream          the stream to launch on
// A token with an expert gets NaN throughout if one of its hidden values is not finite or one of
// its weights is NaN. No other token's output is affected.
struct MoeLayerCall {
  int32_t m, h, i, e, topk;
  const bf16* hidden;
  const int32_t* ids;
  const float* expert_weights;
  const e4m3* w13;
  const float* w13_scales;
  const e4m3* w2;
  const float* w2_scales;
  float* output;
  void* stream;

  friend bool operator==(const MoeLayerCall&, const MoeLayerCall&) = default;
};

// What a step takes at most.
struct MoeLayerLimits {
  int32_t experts, topk, hidden, intermediate;
  int64_t routes;  // m * topk
};

// Throws InvalidCall with the first limit that the call breaks.
inline void check_call(const MoeLayerCall& call, const MoeLayerLimits& limits) {
  // To make the texts of a right call would take as long as to launch it.
  const auto extent = [&](const char* name, int64_t value, int64_t largest, int64_t multiple) {
    if (value >= 1 && value <= largest && value % multiple == 0) return;
    throw InvalidCall(std::string(name) + " = " + std::to_string(value) + ": expected " +
                      (multiple > 1 ? "a multiple of " + std::to_string(multiple) + ", " : "") +
                      "1 to " + std::to_string(largest));
  };
  extent("e", call.e, limits.experts, 1);
  extent("topk", call.topk, limits.topk, 1);
  extent("h", call.h, limits.hidden, 128);
  extent("i", call.i, limits.intermediate, 128);
  extent("m", call.m, limits.routes / call.topk, 1);
  const void* tensors[] = {call.hidden,     call.ids, call.expert_weights, call.w13,
                           call.w13_scales, call.w2,  call.w2_scales,      call.output};
  constexpr const char* kNames[] = {"hidden",     "ids", "expert_weights", "w13",
                                    "w13_scales", "w2",  "w2_scales",      "output"};
  for (int i = 0; i < 8; ++i) {
    if (tensors[i] != nullptr && reinterpret_cast<uintptr_t>(tensors[i]) % 16 == 0) continue;
    throw InvalidCall(std::string(kNames[i]) + " is null or not aligned to 16 bytes");
  }
}

}  // namespace kb

// Every step defines both:
//   kb_run        enqueues one call; status, and one line in message unless it is kOk
//   kb_describe   fills in the constants of the step's kernel
KB_EXPORT int kb_run(const kb::MoeLayerCall* call, char* message, size_t size);
KB_EXPORT void kb_describe(kb::Description* out);
