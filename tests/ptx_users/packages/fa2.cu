// FlashAttention 2's forward pass, causal and not.
#include "attention.hpp"
#include "flash_fwd_launch_template.h"

template <bool kCausal>
bool right(int queries, int keys) {
  constexpr int kHeads = 2, kKvHeads = 1, kDim = 64;
  Array<half> q(queries * kHeads * kDim, 1), k(keys * kKvHeads * kDim, 2), v(k.host.size(), 3),
      o(q.host.size());
  Array<float> lse(kHeads * queries);
  FLASH_NAMESPACE::Flash_fwd_params params{};
  params.q_ptr = q.device, params.k_ptr = k.device, params.v_ptr = v.device;
  params.o_ptr = o.device, params.softmax_lse_ptr = lse.device;
  params.q_batch_stride = params.o_batch_stride = queries * kHeads * kDim;
  params.k_batch_stride = params.v_batch_stride = keys * kKvHeads * kDim;
  params.q_row_stride = params.o_row_stride = kHeads * kDim;
  params.k_row_stride = params.v_row_stride = kKvHeads * kDim;
  params.q_head_stride = params.k_head_stride = params.v_head_stride = kDim;
  params.o_head_stride = kDim;
  params.h = kHeads, params.h_k = kKvHeads, params.h_h_k_ratio = kHeads / kKvHeads, params.b = 1;
  params.seqlen_q = queries, params.seqlen_k = keys, params.d = params.d_rounded = kDim;
  params.seqlen_q_rounded = (queries + 127) / 128 * 128;
  params.seqlen_k_rounded = (keys + 127) / 128 * 128;
  params.scale_softmax = 1 / std::sqrt(float(kDim));
  params.scale_softmax_log2 = params.scale_softmax * float(M_LOG2E);
  params.p_dropout = params.rp_dropout = 1;
  params.p_dropout_in_uint8_t = 255;
  params.window_size_left = -1, params.window_size_right = kCausal ? 0 : -1;
  params.is_causal = kCausal;
  FLASH_NAMESPACE::run_flash_fwd<
      Flash_fwd_kernel_traits<kDim, 128, 128, 4, false, false, cutlass::half_t>, false, kCausal>(
      params, nullptr);
  o.down();
  return attention_near(q, k, v, o, queries, keys, kHeads, kKvHeads, kDim, kCausal, 1e-2);
}

int main() {
  return right<true>(100, 170) ? right<false>(128, 128) ? 0 : 3 : 2;
}
