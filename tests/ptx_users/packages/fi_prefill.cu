// FlashInfer's attention of many queries by warps' products (FlashAttention 2), causal and not.
#include "attention.hpp"
//
#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/variants.cuh>

template <flashinfer::MaskMode kMask>
bool right(int queries, int keys) {
  constexpr int kHeads = 4, kKvHeads = 2, kDim = 64;
  using Params = flashinfer::SinglePrefillParams<half, half, half>;
  using Variant = flashinfer::DefaultAttention<false, false, false, false>;
  Array<half> q(queries * kHeads * kDim, 1), k(keys * kKvHeads * kDim, 2), v(k.host.size(), 3),
      o(q.host.size());
  Params params(q.device, k.device, v.device, nullptr, o.device, nullptr, nullptr, kHeads, kKvHeads,
                queries, keys, kHeads * kDim, kDim, kKvHeads * kDim, kDim, kDim, -1, 0,
                1 / std::sqrt(float(kDim)), 1, 1e4);
  CHECK((
      flashinfer::SinglePrefillWithKVCacheDispatched<kDim, kDim, flashinfer::PosEncodingMode::kNone,
                                                     false, kMask, Variant>(params, nullptr,
                                                                            nullptr)));
  o.down();
  return attention_near(q, k, v, o, queries, keys, kHeads, kKvHeads, kDim,
                        kMask == flashinfer::MaskMode::kCausal, 1e-2);
}

int main() {
  if (!right<flashinfer::MaskMode::kCausal>(37, 75)) return 2;
  return right<flashinfer::MaskMode::kNone>(5, 130) ? 0 : 3;
}
