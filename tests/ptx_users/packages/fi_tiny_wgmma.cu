// FlashInfer's product for few tokens on Hopper: 16 of the 64 rows that wgmma multiplies.
#include "host.hpp"
//
#include "csrc/cake_tinygemm2_wgmma/cake_tinygemm2_wgmma_cd6d8da8f120c1e862a5_kernel.cu"

int main() {
  constexpr int kOutputs = 64, kTokens = 12, kDepth = 256;
  using T = __nv_bfloat16;
  Array<T> w(kOutputs * kDepth, 1), x(kTokens * kDepth, 2), out(kTokens * kOutputs);
  const auto map = [](T* data, unsigned rows, unsigned box) {
    return tensor_map(data, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, {64, rows, kDepth / 64}, {64, box, 4},
                      128, {kDepth * sizeof(T), 128});
  };
  kernel_cake_tinygemm2_wgmma_cd6d8da8f120c1e862a5<<<dim3((kTokens + 7) / 8, kOutputs / 16), 160,
                                                     29696>>>(map(w.device, kOutputs, 16),
                                                              map(x.device, kTokens, 8), out.device,
                                                              nullptr, kOutputs, kTokens, kDepth);
  CHECK(cudaGetLastError());
  out.down();
  for (int at = 0; at < kTokens * kOutputs; ++at) {
    double want = 0;
    for (int i = 0; i < kDepth; ++i)
      want += w[at % kOutputs * kDepth + i] * x[at / kOutputs * kDepth + i];
    if (!near("out", at, out[at], want, 1e-2)) return 1;
  }
  return 0;
}
