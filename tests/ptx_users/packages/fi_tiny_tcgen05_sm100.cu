// FlashInfer's product for few tokens on Blackwell: four parts of K side by side in tensor memory,
// added at the end.
#include "host.hpp"
//
#include "csrc/cake_tinygemm2_tcgen05/cake_tinygemm2_tcgen05_eb55bfbe52f5ff00b048_kernel.cu"

int main() {
  constexpr int kOutputs = 64, kTokens = 12, kDepth = 1280;
  using T = __nv_bfloat16;
  Array<T> w(kOutputs * kDepth, 1), x(kTokens * kDepth, 2), out(kTokens * kOutputs);
  const auto map = [](T* data, unsigned rows, unsigned box) {
    return tensor_map(data, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, {kDepth, rows}, {64, box}, 128);
  };
  const auto kernel = kernel_cake_tinygemm2_tcgen05_eb55bfbe52f5ff00b048;
  constexpr int kShared = 205824;
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
  kernel<<<dim3(kOutputs / 32, (kTokens + 7) / 8), 256, kShared>>>(
      map(w.device, kOutputs, 32), map(x.device, kTokens, 8), out.device, nullptr, kOutputs,
      kTokens, kDepth);
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
