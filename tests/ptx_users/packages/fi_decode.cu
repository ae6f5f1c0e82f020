// FlashInfer's decode of one query with a cache: one chunk, and chunks that are merged.
#include "attention.hpp"
//
#include <flashinfer/attention/decode.cuh>
#include <flashinfer/attention/default_decode_params.cuh>
#include <flashinfer/attention/variants.cuh>

template <int kDim>
bool right(int length) {
  constexpr int kHeads = 4, kKvHeads = 2;
  using Params = flashinfer::SingleDecodeParams<half, half, half>;
  using Variant = flashinfer::DefaultAttention<false, false, false, false>;
  Array<half> q(kHeads * kDim, 1), k(length * kKvHeads * kDim, 2), v(k.host.size(), 3),
      o(kHeads * kDim), chunks(64 * kHeads * kDim * 2);
  Params params(q.device, k.device, v.device, o.device, nullptr, length, kHeads, kKvHeads,
                flashinfer::QKVLayout::kNHD, kDim, -1, 0, 1 / std::sqrt(float(kDim)), 1, 1e4);
  CHECK((flashinfer::SingleDecodeWithKVCacheDispatched<kDim, flashinfer::PosEncodingMode::kNone,
                                                       Variant>(params, chunks.device, nullptr)));
  o.down();
  return attention_near(q, k, v, o, 1, length, kHeads, kKvHeads, kDim, false, 1e-2);
}

int main() {
  return right<64>(100) && right<128>(600) ? 0 : 2;
}
