// mamba-ssm's selective scan, forward: a state of each channel goes along the sequence.
#include "host.hpp"
#include "selective_scan_fwd_kernel.cuh"

int main() {
  constexpr int kBatch = 2, kDim = 4, kState = 8;
  for (const int length : {100, 2100}) {
    const int chunks = (length + 2047) / 2048;
    Array<float> u(kBatch * kDim * length, 1), delta(u.host.size(), 2), a(kDim * kState, 3),
        b(kBatch * kState * length, 4), c(b.host.size(), 5), d(kDim, 6), z(u.host.size(), 7),
        out(u.host.size()), out_z(u.host.size()), x(kBatch * kDim * chunks * kState * 2);
    for (auto& each : a.host) each = -std::fabs(each) - 0.125f;
    a.up();
    SSMParamsBase params{};
    params.batch = kBatch, params.dim = kDim, params.seqlen = length, params.dstate = kState;
    params.n_groups = 1, params.n_chunks = chunks, params.dim_ngroups_ratio = kDim;
    params.is_variable_B = params.is_variable_C = params.delta_softplus = true;
    params.A_d_stride = kState, params.A_dstate_stride = 1;
    params.B_batch_stride = params.C_batch_stride = kState * length;
    params.B_group_stride = params.C_group_stride = kState * length;
    params.B_dstate_stride = params.C_dstate_stride = length;
    params.u_batch_stride = params.delta_batch_stride = params.z_batch_stride = kDim * length;
    params.out_batch_stride = params.out_z_batch_stride = kDim * length;
    params.u_d_stride = params.delta_d_stride = params.z_d_stride = params.out_d_stride = length;
    params.out_z_d_stride = length;
    params.A_ptr = a.device, params.B_ptr = b.device, params.C_ptr = c.device;
    params.D_ptr = d.device, params.u_ptr = u.device, params.delta_ptr = delta.device;
    params.z_ptr = z.device, params.out_ptr = out.device, params.out_z_ptr = out_z.device;
    params.x_ptr = x.device;
    selective_scan_fwd_cuda<float, float>(params, nullptr);
    out.down();
    out_z.down();
    for (int row = 0; row < kBatch * kDim; ++row) {
      const int batch = row / kDim, channel = row % kDim;
      double state[kState] = {};
      for (int t = 0; t < length; ++t) {
        const size_t at = size_t(row) * length + t;
        const double step = std::log1p(std::exp(delta[at]));
        double y = d[channel] * u[at];
        for (int i = 0; i < kState; ++i) {
          const size_t of_bc = (size_t(batch) * kState + i) * length + t;
          state[i] = std::exp(step * a[channel * kState + i]) * state[i] + step * b[of_bc] * u[at];
          y += c[of_bc] * state[i];
        }
        if (!near("out", at, out[at], y, 1e-3)) return 2;
        if (!near("out_z", at, out_z[at], y * z[at] / (1 + std::exp(-z[at])), 1e-3)) return 3;
      }
    }
  }
  return 0;
}
