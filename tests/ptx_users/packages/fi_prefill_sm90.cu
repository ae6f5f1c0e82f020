// FlashInfer's attention of many queries for Hopper (FlashAttention 3), causal and not.
#include "attention.hpp"
//
#include <flashinfer/attention/hopper/default_params.cuh>
#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>

template <flashinfer::MaskMode kMask>
bool right(int queries, int keys) {
  constexpr int kHeads = 2, kKvHeads = 1, kDim = 64;
  using T = cutlass::half_t;
  using Params = flashinfer::SinglePrefillParams<T, T, T>;
  Array<T> q(queries * kHeads * kDim, 1), k(keys * kKvHeads * kDim, 2), v(k.host.size(), 3),
      o(q.host.size());
  Array<float> lse(size_t(queries) * kHeads);
  Params params{};
  params.q_ptr = q.device, params.k_ptr = k.device, params.v_ptr = v.device;
  params.o_ptr = o.device, params.lse_ptr = lse.device;
  params.additional_params.sm_scale = 1 / std::sqrt(float(kDim));
  params.q_stride_n = params.o_stride_n = kHeads * kDim;
  params.k_stride_n = params.v_stride_n = kKvHeads * kDim;
  params.q_stride_h = params.k_stride_h = params.v_stride_h = params.o_stride_h = kDim;
  params.qo_len = queries, params.kv_len = keys;
  params.num_qo_heads = kHeads, params.num_kv_heads = kKvHeads;
  params.group_size = kHeads / kKvHeads, params.window_left = -1;
  params.causal = kMask == flashinfer::MaskMode::kCausal;
  CHECK((flashinfer::SinglePrefillWithKVCacheDispatched<kDim, kDim, kMask, false,
                                                        flashinfer::StandardAttention>(params,
                                                                                       nullptr)));
  o.down();
  return attention_near(q, k, v, o, queries, keys, kHeads, kKvHeads, kDim, params.causal, 1e-2);
}

int main() {
  if (!right<flashinfer::MaskMode::kCausal>(200, 264)) return 2;
  return right<flashinfer::MaskMode::kNone>(70, 300) ? 0 : 3;
}
