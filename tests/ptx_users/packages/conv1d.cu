// causal-conv1d: the forward pass with channels first and last.
#include "causal_conv1d_fwd.cu"
#include "host.hpp"

int main() {
  constexpr int kBatch = 2, kDim = 64, kLength = 300, kWidth = 4;
  using T = at::BFloat16;
  Array<__nv_bfloat16> x(kBatch * kDim * kLength, 1), weight(kDim * kWidth, 2), bias(kDim, 3),
      out(x.host.size());
  const auto want = [&](auto at, int channel, int time) {
    double sum = bias[channel];
    for (int i = 0; i < kWidth; ++i) {
      const int source = time - kWidth + 1 + i;
      if (source >= 0) sum += weight[channel * kWidth + i] * x[at(source)];
    }
    return sum / (1 + std::exp(-sum));
  };
  for (const bool last : {false, true}) {
    ConvParamsBase params{};
    params.batch = kBatch, params.dim = kDim, params.seqlen = kLength, params.width = kWidth;
    params.silu_activation = true;
    params.x_batch_stride = params.out_batch_stride = kDim * kLength;
    params.x_c_stride = params.out_c_stride = last ? 1 : kLength;
    params.x_l_stride = params.out_l_stride = last ? kDim : 1;
    params.weight_c_stride = kWidth, params.weight_width_stride = 1;
    params.x_ptr = x.device, params.weight_ptr = weight.device, params.bias_ptr = bias.device;
    params.out_ptr = out.device;
    if (last) {
      causal_conv1d_channellast_fwd_cuda<T, T>(params, nullptr);
    } else {
      causal_conv1d_fwd_cuda<T, T>(params, nullptr);
    }
    out.down();
    for (int i = 0; i < kBatch * kDim * kLength; ++i) {
      const int batch = i / (kDim * kLength), in_batch = i % (kDim * kLength);
      const int channel = last ? in_batch % kDim : in_batch / kLength;
      const int time = last ? in_batch / kDim : in_batch % kLength;
      const auto at = [&](int t) {
        return batch * kDim * kLength + (last ? t * kDim + channel : channel * kLength + t);
      };
      if (!near("out", i, out[i], want(at, channel, time), 2e-2)) return last ? 3 : 2;
    }
  }
  return 0;
}
