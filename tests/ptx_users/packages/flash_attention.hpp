// What the programs of FlashAttention 2 share: a problem, [length, heads, dim], and its parameters.
#pragma once

#include <cutlass/numeric_types.h>

#include "attention.hpp"
#include "flash.h"

constexpr int kHeads = 2, kKvHeads = 1, kDim = 64;

struct Rows {
  int queries, keys;
  bool causal;
  Array<cutlass::half_t> q, k, v, o;
  Array<float> lse;

  Rows(int queries, int keys, bool causal)
      : queries(queries),
        keys(keys),
        causal(causal),
        q(queries * kHeads * kDim, 1),
        k(keys * kKvHeads * kDim, 2),
        v(k.host.size(), 3),
        o(q.host.size()),
        lse((queries + 127) / 128 * 128 * kHeads) {}

  template <typename Params>
  Params params() const {
    Params to{};
    to.q_ptr = q.device, to.k_ptr = k.device, to.v_ptr = v.device, to.o_ptr = o.device;
    to.softmax_lse_ptr = lse.device;
    to.q_row_stride = to.o_row_stride = kHeads * kDim;
    to.k_row_stride = to.v_row_stride = kKvHeads * kDim;
    to.q_head_stride = to.k_head_stride = to.v_head_stride = to.o_head_stride = kDim;
    to.b = 1, to.h = kHeads, to.h_k = kKvHeads, to.h_h_k_ratio = kHeads / kKvHeads;
    to.seqlen_q = queries, to.seqlen_k = keys, to.d = to.d_rounded = kDim;
    to.seqlen_q_rounded = (queries + 127) / 128 * 128;
    to.seqlen_k_rounded = (keys + 127) / 128 * 128;
    to.scale_softmax = 1 / std::sqrt(float(kDim));
    to.scale_softmax_log2 = float(to.scale_softmax * M_LOG2E);
    to.p_dropout = to.rp_dropout = 1, to.p_dropout_in_uint8_t = 255;
    to.scale_softmax_rp_dropout = to.scale_softmax;
    to.window_size_left = -1, to.window_size_right = causal ? 0 : -1;
    to.is_causal = causal;
    return to;
  }
  bool right() {
    o.down();
    return attention_near(q, k, v, o, queries, keys, kHeads, kKvHeads, kDim, causal, 4e-3);
  }
};
