// The interface of a fused MoE step: route tokens to experts, quantize them to FP8 by block,
// multiply with the experts' block-scaled FP8 weights, add the weighted products in float32.
#pragma once

#include "entry.cuh"

namespace kb {

inline constexpr uint32_t kMaxExperts = 512;
inline constexpr uint32_t kMaxTopk = 8;

// One call; pointers are to device memory, dense, row-major.
//   m, n, k         tokens, outputs and inputs of a token
//   e, topk         experts, and how many of them a token goes to
//   renormalize     whether a token's expert weights are divided by their sum
//   softcap         bound of the logits; 0 for none
//   hidden          bf16 [m, k]
//   gating          float [m, e]
//   weights         e4m3 [e, n, k]
//   weight_scales   float [e, n / 128, k / 128]
//   output          float [m, n], to be written
//   stream          the stream to launch on
// A token's output is NaN throughout if one of its hidden values is not finite, or the largest of
// its logits (after the softcap) is not, or one is NaN. No other token's output is affected.
struct FusedMoeCall {
  int32_t m, n, k, e, topk;
  int32_t renormalize;
  float softcap;
  const bf16* hidden;
  const float* gating;
  const e4m3* weights;
  const float* weight_scales;
  float* output;
  void* stream;

  friend bool operator==(const FusedMoeCall&, const FusedMoeCall&) = default;
};

}  // namespace kb

// Every step defines both:
//   kb_run        enqueues one call; status, and one line in message unless it is kOk
//   kb_describe   fills in the constants of the step's GEMM
KB_EXPORT int kb_run(const kb::FusedMoeCall* call, char* message, size_t size);
KB_EXPORT void kb_describe(kb::Description* out);
