// FlashInfer's product of few tokens with the experts' columns (DeepSeek V3's router).
#include "host.hpp"
//
#include <flashinfer/gemm/dsv3_router_gemm.cuh>

int main() {
  constexpr int kTokens = 3, kExperts = 16, kIn = 2048;
  Array<__nv_bfloat16> x(kTokens * kIn, 1), weight(kExperts * kIn, 2);
  Array<float> y(kTokens * kExperts);
  produce(x);
  launch(flashinfer::trtllm_dsv3_router_gemm::router_gemm_kernel<__nv_bfloat16, float, 128, 8,
                                                                 kTokens, kExperts, kIn>,
         kExperts, 128, 0, 1, y.device, x.device, weight.device);
  y.down();
  for (int at = 0; at < kTokens * kExperts; ++at) {
    double want = 0;
    for (int k = 0; k < kIn; ++k)
      want += x[at / kExperts * kIn + k] * weight[at % kExperts * kIn + k];
    if (!near("y", at, y[at], want, 1e-3)) return 2;
  }
  return 0;
}
