// DeepGEMM's sum of products for Hopper: D [m, n] += A [s, m, k] · B [s, n, k]ᵀ over s, by atomics.
#include <deep_gemm/impls/sm90_bmk_bnk_mn.cuh>

#include "host.hpp"

int main() {
  constexpr int kS = 3, kM = 128, kN = 128, kK = 128, kStages = 3, kSplit = 4;
  Array<__nv_bfloat16> a(kS * kM * kK, 1), b(kS * kN * kK, 2);
  Array<float> d(kM * kN, 3);
  const auto before = d.host;
  const auto bf16 = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const auto map_a = tensor_map(a.device, bf16, {kK, kS * kM}, {64, 128}, 128);
  const auto map_b = tensor_map(b.device, bf16, {kK, kS * kN}, {64, 128}, 128);
  const size_t shared = kStages * (128 + 128) * 64 * 2 + 1024;
  const int splits = (kS * kK / 64 + kSplit - 1) / kSplit;
  produce(a, b, d);
  launch(deep_gemm::sm90_bmn_bnk_mn_gemm_impl<kM, kN, kK, 128, 128, 64, kSplit, kStages, 128, 256>,
         splits, 384, shared, 1, kS, map_a, map_b, d.device);
  d.down();
  for (int i = 0; i < kM * kN; ++i) {
    double want = before[i];
    for (int at = 0; at < kS * kK; ++at) {
      const int s = at / kK, k = at % kK;
      want += a[(s * kM + i / kN) * kK + k] * b[(s * kN + i % kN) * kK + k];
    }
    if (!near("d", i, d[i], want, 1e-3)) return 2;
  }
  return 0;
}
