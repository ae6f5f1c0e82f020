// The interface of a group GEMM step: NVFP4 operands, block-scaled, per group
// C[m, n] = (A[m, k] * SFA) (B[n, k] * SFB)^T, fp16 result.
#pragma once

#include "entry.cuh"

namespace kb {

inline constexpr int kMaxGroups = 8;
inline constexpr uint32_t kScaleBlock = 16;  // elements along K that share a scale

// One call. Arrays have group_count entries and lie in host memory; what they point to is on the
// device.
//   a, b       packed e2m1, K-major: [m, k / 2] and [n, k / 2] bytes
//   c          fp16 [m, n], row-major, to be written
//   sfa, sfb   ue4m3 in the blocked layout, [ceil(rows / 128), k / 64, 32, 4, 4] bytes; rows past
//              m or n hold anything
//   m, n, k    extents; k counts elements
//   stream     the stream to launch on
struct GroupGemmCall {
  int32_t group_count;
  const uint64_t* a;
  const uint64_t* b;
  const uint64_t* c;
  const uint64_t* sfa;
  const uint64_t* sfb;
  const int32_t* m;
  const int32_t* n;
  const int32_t* k;
  void* stream;
};

}  // namespace kb

// Every step defines both:
//   kb_run        enqueues one call; status, and one line in message unless it is kOk
//   kb_describe   fills in the step's constants
KB_EXPORT int kb_run(const kb::GroupGemmCall* call, char* message, size_t size);
KB_EXPORT void kb_describe(kb::Description* out);
