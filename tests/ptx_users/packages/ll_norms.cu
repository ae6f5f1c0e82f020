// llama.cpp's norms: layer, group and RMS, by dependent launches.
#include "norm.cu"
//
#include "ggml_stand_in.hpp"

int main() {
  constexpr int kRows = 3;
  for (const int columns : {100, 1500}) {
    Array<float> x(kRows * columns, 1), layer(kRows * columns), group(kRows * columns),
        rms(kRows * columns);
    norm_f32_cuda(x.device, layer.device, columns, kRows, 1, 1, columns, kRows * columns,
                  kRows * columns, 1e-5f, nullptr);
    group_norm_f32_cuda(x.device, group.device, kRows, 1e-5f, columns, kRows * columns, nullptr);
    produce(x);
    rms_norm_f32_cuda(x.device, rms.device, columns, kRows, 1, 1, columns, kRows * columns,
                      kRows * columns, 1e-5f, nullptr);
    layer.down();
    group.down();
    rms.down();
    for (int row = 0; row < kRows; ++row) {
      double sum = 0, squares = 0;
      for (int i = 0; i < columns; ++i) {
        sum += x[row * columns + i] / columns;
        squares += x[row * columns + i] * x[row * columns + i] / columns;
      }
      for (int at = row * columns; at < (row + 1) * columns; ++at) {
        const double centred = (x[at] - sum) / std::sqrt(squares - sum * sum + 1e-5);
        if (!near("layer", at, layer[at], centred, 1e-3)) return 2;
        if (!near("group", at, group[at], centred, 1e-3)) return 3;
        if (!near("rms", at, rms[at], x[at] / std::sqrt(squares + 1e-5), 1e-3)) return 4;
      }
    }
  }
  return 0;
}
