// llama.cpp's softmax of rows with a mask, for rows of a warp's length, of a template's and longer.
#include "softmax.cu"
//
#include "ggml_stand_in.hpp"

bool right(int columns) {
  constexpr int kRows = 3;
  Array<float> x(kRows * columns, 1), mask(kRows * columns, 2), y(kRows * columns);
  soft_max_params params{};
  params.nheads = 1, params.n_head_log2 = 1, params.ncols = columns, params.nrows_x = kRows;
  params.nrows_y = 1, params.ne00 = columns, params.ne01 = kRows, params.ne02 = params.ne03 = 1;
  params.nb11 = columns * 4, params.ne12 = params.ne13 = 1, params.scale = 0.5f,
  params.m0 = params.m1 = 1;
  soft_max_f32_cuda<float>(x.device, mask.device, nullptr, y.device, params, nullptr,
                           *static_cast<ggml_backend_cuda_context*>(nullptr));
  y.down();
  for (int at = 0; at < kRows * columns; ++at) {
    double sum = 0;
    for (int i = 0; i < columns; ++i) {
      const size_t other = at / columns * columns + i;
      sum += std::exp(0.5 * x[other] + mask[other]);
    }
    if (!near("y", at, y[at] * columns, std::exp(0.5 * x[at] + mask[at]) / sum * columns, 1e-3))
      return false;
  }
  return true;
}

int main() {
  for (const int columns : {20, 100, 256, 3000})
    if (!right(columns)) return 2;
  return 0;
}
