// DeepGEMM's logits of an indexer with pages of keys for Hopper, and the schedule of its SMs.
#include <deep_gemm/impls/sm90_fp8_paged_mqa_logits.cuh>

#include "host.hpp"

int main() {
  constexpr int kBatch = 5, kHeads = 32, kDim = 64, kPage = 64, kSplit = 2 * kPage, kSms = 3,
                kStagesQ = 2, kStagesKv = 3, kMost = 6, kStride = 512;
  Array<uint32_t> lengths(kBatch), table(kBatch * kMost), schedule(2 * (kSms + 1));
  for (int i = 0; i < kBatch; ++i) lengths.host[i] = 50 + i * 77;
  for (int i = 0; i < kBatch * kMost; ++i) table.host[i] = i * 7 % (kBatch * kMost);
  lengths.up();
  table.up();
  Array<__nv_fp8_e4m3> q(kBatch * kHeads * kDim, 1), kv(kBatch * kMost * kPage * kDim, 2);
  Array<float> scales(kBatch * kMost * kPage, 3), weights(kBatch * kHeads, 4);
  Array<float> logits(kBatch * kStride);
  produce(lengths);
  launch(deep_gemm::sched::sm90_paged_mqa_logits_metadata<32, kSplit, kSms>, 1, 32, 32 * 4, 1,
         kBatch, 1, false, lengths.device, nullptr, schedule.device);

  const auto bytes = CU_TENSOR_MAP_DATA_TYPE_UINT8;
  const auto f32 = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  const auto map_q = tensor_map(q.device, bytes, {kDim, kBatch * kHeads}, {kDim, kHeads}, kDim);
  const auto map_kv =
      tensor_map(kv.device, bytes, {kDim, kPage, kBatch * kMost}, {kDim, kPage, 1}, kDim);
  const auto map_scales = tensor_map(scales.device, f32, {kPage, kBatch * kMost}, {kPage, 1}, 0);
  const auto map_weights = tensor_map(weights.device, f32, {kHeads, kBatch}, {kHeads, 1}, 0);
  constexpr int kAlign = kDim * 8;
  const size_t shared = kStagesQ * (kHeads * kDim + kAlign) + kAlign +
                        2 * (kStagesKv * (kPage * kDim + kAlign) + kAlign);
  launch(deep_gemm::sm90_fp8_paged_mqa_logits<1, kHeads, kDim, kPage, false, false, kStagesQ,
                                              kStagesKv, kSplit, 128, 256, float>,
         kSms, 384, shared, 1, kBatch, kStride, kMost, lengths.device, logits.device, table.device,
         nullptr, schedule.device, map_q, map_kv, map_scales, map_weights);
  logits.down();
  for (int i = 0; i < kBatch; ++i) {
    for (int at = 0; at < int(lengths.host[i]); ++at) {
      const int row = table.host[i * kMost + at / kPage] * kPage + at % kPage;
      double want = 0;
      for (int head = 0; head < kHeads; ++head) {
        double dot = 0;
        for (int k = 0; k < kDim; ++k)
          dot += q[(i * kHeads + head) * kDim + k] * kv[row * kDim + k];
        want += std::fmax(dot, 0) * weights[i * kHeads + head];
      }
      if (!near("logits", i * kStride + at, logits[i * kStride + at], want * scales[row], 1e-3))
        return 2;
    }
  }
  return 0;
}
