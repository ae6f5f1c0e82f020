// DeepGEMM's bf16 product for Hopper, D [m, n] = A [m, k] · B [n, k]ᵀ: alone and by clusters of
// two.
#include <deep_gemm/impls/sm90_bf16_gemm.cuh>

#include "host.hpp"

constexpr int kM = 192, kN = 256, kK = 320, kBlockM = 64, kBlockN = 128, kStages = 3, kSms = 4;

template <int kCluster>
bool right() {
  Array<__nv_bfloat16> a(kM * kK, 1), b(kN * kK, 2), d(kM * kN);
  const auto bf16 = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const auto map_a = tensor_map(a.device, bf16, {kK, kM}, {64, kBlockM}, 128);
  const auto map_b = tensor_map(b.device, bf16, {kK, kN}, {64, kBlockN}, 128);
  const auto map_d = tensor_map(d.device, bf16, {kN, kM}, {64, kBlockM}, 128);
  const size_t shared = kBlockM * kBlockN * 2 + kStages * (kBlockM + kBlockN) * 64 * 2 + 1024;
  constexpr auto K = cute::UMMA::Major::K;
  produce(a, b);
  launch(deep_gemm::sm90_bf16_gemm_impl<K, K, 0, 0, 0, 1, kBlockM, kBlockN, 64, 128, 128, 128,
                                        kStages, 128, 128, kCluster, false, kSms,
                                        deep_gemm::GemmType::Normal, false, cutlass::bfloat16_t>,
         kSms, 256, shared, kCluster, nullptr, kM, kN, kK, map_a, map_b, map_d);
  d.down();
  for (int i = 0; i < kM * kN; ++i) {
    double want = 0;
    for (int k = 0; k < kK; ++k) want += a[i / kN * kK + k] * b[i % kN * kK + k];
    if (!near("d", i, d[i], want, 1e-2)) return false;
  }
  return true;
}

int main() {
  return right<1>() ? right<2>() ? 0 : 3 : 2;
}
