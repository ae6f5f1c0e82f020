// DeepGEMM's fp8 product for Hopper with scales of 1 × 128 of A and of 128 × 128 of B.
#include <deep_gemm/impls/sm90_fp8_gemm_1d2d.cuh>

#include "host.hpp"

constexpr int kM = 100, kN = 320, kK = 384, kBlockM = 64, kBlockN = 64, kStages = 3, kSms = 4;

template <int kCluster>
bool right() {
  constexpr int kPadded = (kM + 3) / 4 * 4, kGroups = kK / 128, kRows = (kN + 127) / 128;
  Array<__nv_fp8_e4m3> a(kM * kK, 1), b(kN * kK, 2);
  Array<float> scale_a(kPadded * kGroups, 3), scale_b(kRows * kGroups, 4);
  Array<__nv_bfloat16> d(kM * kN);
  const auto bytes = CU_TENSOR_MAP_DATA_TYPE_UINT8;
  const auto map_a = tensor_map(a.device, bytes, {kK, kM}, {128, kBlockM}, 128);
  const auto map_b = tensor_map(b.device, bytes, {kK, kN}, {128, kBlockN}, 128);
  const auto map_d =
      tensor_map(d.device, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, {kN, kM}, {64, kBlockM}, 128);
  const auto map_scale = tensor_map(scale_a.device, CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                                    {kPadded, kGroups}, {kBlockM, 1}, 0);
  const size_t shared =
      kBlockM * kBlockN * 2 + kStages * ((kBlockM + kBlockN) * 128 + kBlockM * 4) + 1024;
  produce(a, b, scale_a, scale_b);
  launch(deep_gemm::sm90_fp8_gemm_1d2d_impl<cute::UMMA::Major::K, 0, 0, 0, 1, kBlockM, kBlockN, 128,
                                            128, 128, 128, kStages, 128, 128, kCluster, false, kSms,
                                            deep_gemm::GemmType::Normal, cutlass::bfloat16_t>,
         kSms, 256, shared, kCluster, scale_b.device, nullptr, kM, kN, kK, map_a, map_b, map_d,
         map_scale);
  d.down();
  for (int i = 0; i < kM * kN; ++i) {
    const int m = i / kN, n = i % kN;
    double want = 0;
    for (int k = 0; k < kK; ++k) {
      want += a[m * kK + k] * b[n * kK + k] * scale_a[k / 128 * kPadded + m] *
              scale_b[n / 128 * kGroups + k / 128];
    }
    if (!near("d", i, d[i], want, 1e-2)) return false;
  }
  return true;
}

int main() {
  return right<1>() ? right<2>() ? 0 : 3 : 2;
}
