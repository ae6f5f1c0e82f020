// DeepGEMM's logits of an indexer for Hopper: of each query and key the heads' weighted ReLU,
// summed.
#include <deep_gemm/impls/sm90_fp8_mqa_logits.cuh>

#include "host.hpp"

int main() {
  constexpr int kQueries = 6, kKeys = 300, kHeads = 32, kDim = 64, kBlockQ = 2, kBlockKv = 128,
                kStagesQ = 2, kStagesKv = 3, kSms = 2;
  Array<__nv_fp8_e4m3> q(kQueries * kHeads * kDim, 1), kv(kKeys * kDim, 2);
  Array<float> scales(kKeys, 3), weights(kQueries * kHeads, 4), logits(kQueries * kKeys, 5);
  Array<uint32_t> start(kQueries), end(kQueries);
  for (int i = 0; i < kQueries; ++i) start.host[i] = i * 7, end.host[i] = 200 + i * 20;
  start.up();
  end.up();
  const auto bytes = CU_TENSOR_MAP_DATA_TYPE_UINT8;
  const auto f32 = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  const auto map_q =
      tensor_map(q.device, bytes, {kDim, kQueries * kHeads}, {kDim, kBlockQ * kHeads}, kDim);
  const auto map_kv = tensor_map(kv.device, bytes, {kDim, kKeys}, {kDim, kBlockKv}, kDim);
  const auto map_scales = tensor_map(scales.device, f32, {kKeys, 1}, {kBlockKv, 1}, 0);
  const auto map_weights =
      tensor_map(weights.device, f32, {kHeads, kQueries}, {kHeads, kBlockQ}, 0);
  const size_t shared = kStagesQ * kBlockQ * kHeads * (kDim + 4) +
                        kStagesKv * kBlockKv * (kDim + 4) + (kStagesQ + kStagesKv) * 16 + 1024;
  produce(q, kv, scales, weights, start, end);
  launch(deep_gemm::sm90_fp8_mqa_logits<kHeads, kDim, kBlockQ, kBlockKv, kStagesQ, kStagesKv, kSms,
                                        128, 256, float>,
         kSms, 384, shared, 1, kQueries, kKeys, kKeys, start.device, end.device, logits.device,
         map_q, map_kv, map_scales, map_weights);
  logits.down();
  for (int i = 0; i < kQueries; ++i) {
    for (uint32_t at = start.host[i]; at < end.host[i]; ++at) {
      double want = 0;
      for (int head = 0; head < kHeads; ++head) {
        double dot = 0;
        for (int k = 0; k < kDim; ++k) dot += q[(i * kHeads + head) * kDim + k] * kv[at * kDim + k];
        want += std::fmax(dot, 0) * weights[i * kHeads + head];
      }
      const size_t place = i * kKeys + at - start.host[i];
      if (!near("logits", place, logits[place], want * scales[at], 1e-3)) return 2;
    }
  }
  return 0;
}
