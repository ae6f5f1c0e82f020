// FlashInfer's append of keys and values to pages, then the decode of a batch of them.
#include "attention.hpp"
//
#include <flashinfer/attention/decode.cuh>
#include <flashinfer/attention/default_decode_params.cuh>
#include <flashinfer/attention/variants.cuh>
#include <flashinfer/page.cuh>

int main() {
  constexpr int kBatch = 3, kHeads = 4, kKvHeads = 2, kDim = 64, kPage = 8;
  const int lengths[kBatch] = {5, 24, 50};
  std::vector<int> indptr{0}, last, indices, of_token, positions, requests, tiles(kBatch),
      o_indptr{0};
  for (int i = 0; i < kBatch; ++i) {
    indptr.push_back(indptr.back() + (lengths[i] + kPage - 1) / kPage);
    last.push_back((lengths[i] - 1) % kPage + 1);
    for (int at = 0; at < lengths[i]; ++at) of_token.push_back(i), positions.push_back(at);
    requests.push_back(i);
    o_indptr.push_back(i + 1);
  }
  const int pages = indptr.back(), tokens = int(of_token.size());
  for (int i = 0; i < pages; ++i) indices.push_back(pages - 1 - i);
  Array<int> d_indptr(indptr), d_last(last), d_indices(indices), d_of_token(of_token),
      d_positions(positions), d_requests(requests), d_tiles(tiles), d_o(o_indptr),
      chunk(std::vector<int>{1 << 20});
  Array<half> k(tokens * kKvHeads * kDim, 1), v(tokens * kKvHeads * kDim, 2),
      q(kBatch * kHeads * kDim, 3), o(kBatch * kHeads * kDim),
      cache_k(pages * kPage * kKvHeads * kDim), cache_v(cache_k.host.size());
  flashinfer::paged_kv_t<half, int> cache(
      kKvHeads, kPage, kDim, kBatch, flashinfer::QKVLayout::kNHD, cache_k.device, cache_v.device,
      d_indices.device, d_indptr.device, d_last.device);
  CHECK(flashinfer::AppendPagedKVCache(cache, k.device, v.device, d_of_token.device,
                                       d_positions.device, tokens, kKvHeads * kDim, kDim,
                                       kKvHeads * kDim, kDim));
  using Params = flashinfer::BatchDecodeParams<half, half, half, int>;
  using Variant = flashinfer::DefaultAttention<false, false, false, false>;
  Params params;
  params.q = q.device, params.paged_kv = cache, params.o = o.device;
  params.padded_batch_size = kBatch, params.num_qo_heads = kHeads;
  params.q_stride_n = kHeads * kDim, params.q_stride_h = kDim, params.window_left = -1;
  params.sm_scale = 1 / std::sqrt(float(kDim));
  params.request_indices = d_requests.device, params.kv_tile_indices = d_tiles.device;
  params.o_indptr = d_o.device, params.kv_chunk_size_ptr = chunk.device;
  params.partition_kv = false;
  produce(q);
  CHECK((flashinfer::BatchDecodeWithPagedKVCacheDispatched<kDim, flashinfer::PosEncodingMode::kNone,
                                                           Variant>(params, nullptr, nullptr, true,
                                                                    nullptr)));
  o.down();
  for (int i = 0, start = 0; i < kBatch; start += lengths[i++]) {
    const auto part = [](const auto& array, size_t from, size_t count) {
      auto copy = array;
      copy.host.assign(array.host.begin() + from, array.host.begin() + from + count);
      return copy;
    };
    const size_t row = kKvHeads * kDim;
    if (!attention_near(
            part(q, i * kHeads * kDim, kHeads * kDim), part(k, start * row, lengths[i] * row),
            part(v, start * row, lengths[i] * row), part(o, i * kHeads * kDim, kHeads * kDim), 1,
            lengths[i], kHeads, kKvHeads, kDim, false, 1e-2))
      return 2;
  }
  return 0;
}
