// llama.cpp's router: softmax over experts, the largest of them, their weights normalized.
#include "topk-moe.cu"
//
#include <algorithm>
#include <numeric>

#include "ggml_stand_in.hpp"

int main() {
  constexpr int kRows = 6, kExperts = 64, kUsed = 4;
  Array<float> x(kRows * kExperts), weights(kRows * kUsed);
  Array<int> ids(kRows * kExperts);
  for (size_t i = 0; i < x.host.size(); ++i) x.host[i] = float(i * 7919 % 1009) / 300;
  x.up();
  topk_moe_config config{};
  config.with_norm = true;
  produce(x);
  ggml_cuda_kernel_launch(topk_moe_cuda<kExperts, false>,
                          ggml_cuda_kernel_launch_params(
                              dim3((kRows + TOPK_MOE_ROWS_PER_BLOCK - 1) / TOPK_MOE_ROWS_PER_BLOCK),
                              dim3(WARP_SIZE, TOPK_MOE_ROWS_PER_BLOCK), size_t(0), nullptr),
                          x.device, weights.device, ids.device, nullptr, kRows, kUsed, -INFINITY,
                          1.0f, config);
  weights.down();
  ids.down();
  for (int row = 0; row < kRows; ++row) {
    std::vector<int> order(kExperts);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      return x.host[row * kExperts + a] > x.host[row * kExperts + b];
    });
    double sum = 0;
    for (int i = 0; i < kUsed; ++i) sum += std::exp(x[row * kExperts + order[i]]);
    for (int i = 0; i < kUsed; ++i) {
      const double want = std::exp(x[row * kExperts + order[i]]) / sum;
      if (ids.host[row * kExperts + i] != order[i]) return 2;
      if (!near("weights", row * kUsed + i, weights[row * kUsed + i], want, 1e-3)) return 3;
    }
  }
  return 0;
}
