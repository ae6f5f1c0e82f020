// DeepGEMM's product of bf16 with f32 by tf32 for Hopper, with the sums of squares of A's rows.
#include <deep_gemm/impls/sm90_tf32_hc_prenorm_gemm.cuh>

#include "host.hpp"

int main() {
  constexpr int kM = 100, kN = 24, kK = 448, kBlockN = 32, kStages = 3, kSplits = 2;
  Array<__nv_bfloat16> a(kM * kK, 1);
  Array<float> b(kN * kK, 2), d(kSplits * kM * kN), squares(kSplits * kM);
  const auto f32 = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  const auto map_a =
      tensor_map(a.device, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, {kK, kM}, {64, 64}, 128);
  const auto map_b = tensor_map(b.device, f32, {kK, kN}, {32, kBlockN}, 128);
  const auto map_d = tensor_map(d.device, f32, {kN, kM, kSplits}, {kBlockN, 64, 1}, 128);
  const size_t shared = 64 * 128 + kStages * (64 * 64 * 2 + kBlockN * 64 * 4) + 1024;
  produce(a, b);
  launch(deep_gemm::sm90_tf32_hc_prenorm_gemm_impl<kN, kK, 64, kBlockN, 64, kSplits, 128, kStages,
                                                   128, 128>,
         (kM + 63) / 64 * kSplits, 256, shared, 1, kM, map_a, map_b, map_d, squares.device);
  d.down();
  squares.down();
  for (int i = 0; i < kM * kN; ++i) {
    double want = 0, got = 0;
    for (int k = 0; k < kK; ++k) want += a[i / kN * kK + k] * b[i % kN * kK + k];
    for (int split = 0; split < kSplits; ++split) got += d[split * kM * kN + i];
    if (!near("d", i, got, want, 1e-2)) return 2;
  }
  for (int m = 0; m < kM; ++m) {
    double want = 0;
    for (int k = 0; k < kK; ++k) want += a[m * kK + k] * a[m * kK + k];
    if (!near("squares", m, squares[m] + squares[kM + m], want, 1e-3)) return 3;
  }
  return 0;
}
