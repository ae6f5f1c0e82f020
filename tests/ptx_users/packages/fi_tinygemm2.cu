// FlashInfer's product for few tokens: weights before the dependency's wait, activations after it.
#include "host.hpp"
//
#include "csrc/tinygemm2.cu"

int main() {
  constexpr int kTokens = 11, kOut = 48, kIn = 2048;
  Array<__nv_bfloat16> x(kTokens * kIn, 1), weight(kOut * kIn, 2), bias(kOut, 3), y(kTokens * kOut);
  for (const bool dependent : {false, true}) {
    produce(x);
    flashinfer::tinygemm2::launch_tinygemm2<true>(x.device, weight.device, y.device, bias.device,
                                                  kTokens, kOut, kIn, nullptr, dependent);
    y.down();
    for (int at = 0; at < kTokens * kOut; ++at) {
      double want = bias[at % kOut];
      for (int k = 0; k < kIn; ++k) want += x[at / kOut * kIn + k] * weight[at % kOut * kIn + k];
      if (!near("y", at, y[at], want, 1e-2)) return 2;
    }
  }
  return 0;
}
