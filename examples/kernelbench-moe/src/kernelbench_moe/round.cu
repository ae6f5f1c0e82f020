// Rounds a step's sums to the op's bfloat16 output. torch's copy would take the host longer than
// one token takes the device.
#include <cuda_bf16.h>

#include <cstdint>

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kValues = 4;  // of a thread

__global__ void round_sums(const float4* sums, uint2* out, uint32_t vectors) {
  const uint32_t at = blockIdx.x * kThreads + threadIdx.x;
  if (at >= vectors) return;
  const float4 values = sums[at];
  const auto half = [](float value) -> uint32_t {
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
  };
  out[at] = {half(values.x) | half(values.y) << 16, half(values.z) | half(values.w) << 16};
}

}  // namespace

// `count`: a multiple of 4; both addresses are multiples of 16. Returns what went wrong, or null.
extern "C" const char* kbm_round(const void* sums, void* out, int64_t count, void* stream) {
  const auto vectors = static_cast<uint32_t>(count / kValues);
  round_sums<<<(vectors + kThreads - 1) / kThreads, kThreads, 0,
               static_cast<cudaStream_t>(stream)>>>(static_cast<const float4*>(sums),
                                                    static_cast<uint2*>(out), vectors);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
