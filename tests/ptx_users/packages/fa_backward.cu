// FlashAttention 2, backward, causal: gradients of keys and values by CTAs, those of queries by
// atomics.
#include "flash_attention.hpp"
//
#include "flash_bwd_launch_template.h"
#include "flash_fwd_launch_template.h"

int main() {
  constexpr int kQueries = 150, kKeys = 200;
  Rows rows(kQueries, kKeys, true);
  auto forward = rows.params<FLASH_NAMESPACE::Flash_fwd_params>();
  FLASH_NAMESPACE::run_mha_fwd_hdim64<cutlass::half_t, true>(forward, nullptr);
  Array<cutlass::half_t> of_o(rows.q.host.size(), 4), of_q(rows.q.host.size()),
      of_k(kKeys * kHeads * kDim), of_v(of_k.host.size());
  auto params = rows.params<FLASH_NAMESPACE::Flash_bwd_params>();
  const int rounded = params.seqlen_q_rounded;
  Array<float> sums(rounded * kHeads), parts(rounded * kHeads * kDim);
  params.do_ptr = of_o.device, params.dq_ptr = of_q.device;
  params.dk_ptr = of_k.device, params.dv_ptr = of_v.device;
  params.dq_accum_ptr = parts.device, params.dsoftmax_sum = sums.device;
  params.do_row_stride = params.dq_row_stride = kHeads * kDim;
  params.dk_row_stride = params.dv_row_stride = kHeads * kDim;  // of each head of queries
  params.do_head_stride = params.dq_head_stride = kDim;
  params.dk_head_stride = params.dv_head_stride = kDim;
  FLASH_NAMESPACE::run_mha_bwd_hdim64<cutlass::half_t, true>(params, nullptr);
  rows.o.down(), of_q.down(), of_k.down(), of_v.down();
  const double scale = 1 / std::sqrt(double(kDim));
  std::vector<double> q(of_q.host.size()), k(of_k.host.size()), v(of_k.host.size()), p(kKeys);
  for (int row = 0; row < kQueries * kHeads; ++row) {
    const int query = row / kHeads, head = row % kHeads, seen = kKeys - kQueries + query + 1;
    double sum = 0, mean = 0;
    for (int key = 0; key < seen; ++key) {
      double dot = 0;
      for (int i = 0; i < kDim; ++i) dot += rows.q[row * kDim + i] * rows.k[key * kDim + i];
      sum += p[key] = std::exp(dot * scale);
    }
    for (int i = 0; i < kDim; ++i) mean += of_o[row * kDim + i] * rows.o[row * kDim + i];
    for (int key = 0; key < seen; ++key) {
      double of_p = 0;
      const double weight = p[key] / sum;
      for (int i = 0; i < kDim; ++i) of_p += of_o[row * kDim + i] * rows.v[key * kDim + i];
      const double of_score = weight * (of_p - mean) * scale;
      for (int i = 0; i < kDim; ++i) {
        const int at = (key * kHeads + head) * kDim + i;
        q[row * kDim + i] += of_score * rows.k[key * kDim + i];
        k[at] += of_score * rows.q[row * kDim + i];
        v[at] += weight * of_o[row * kDim + i];
      }
    }
  }
  for (size_t at = 0; at < q.size(); ++at)
    if (!near("dq", at, of_q[at], q[at], 1e-2)) return 2;
  for (size_t at = 0; at < k.size(); ++at) {
    if (!near("dk", at, of_k[at], k[at], 1e-2)) return 3;
    if (!near("dv", at, of_v[at], v[at], 1e-2)) return 4;
  }
  return 0;
}
