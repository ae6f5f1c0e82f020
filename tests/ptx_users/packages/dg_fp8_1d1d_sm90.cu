// DeepGEMM's fp8 product for Hopper with scales of 1 × 128 of both operands, added to D; and groups
// along K, whose tensor maps the kernel writes.
#include <deep_gemm/impls/sm90_fp8_gemm_1d1d.cuh>

#include "host.hpp"

constexpr int kM = 128, kN = 64, kBlockM = 128, kBlockN = 64, kStages = 2, kSms = 2;

template <deep_gemm::GemmType kType>
bool right(std::vector<int> depths) {
  const int groups = int(depths.size());
  int depth = 0;
  for (const int each : depths) depth += each;
  Array<__nv_fp8_e4m3> a(kM * depth, 1), b(kN * depth, 2);
  Array<float> scale_a(kM * depth / 128, 3), scale_b(kN * depth / 128, 4), d(groups * kM * kN, 5);
  Array<int> layout(depths);
  Array<CUtensorMap> maps(kSms * 2);
  const auto before = d.host;
  const auto bytes = CU_TENSOR_MAP_DATA_TYPE_UINT8;
  const auto f32 = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  const cuuint64_t k = depths[0], scales = depth / 128;
  const auto map_a = tensor_map(a.device, bytes, {k, kM}, {128, kBlockM}, 128);
  const auto map_b = tensor_map(b.device, bytes, {k, kN}, {128, kBlockN}, 128);
  const auto map_sa = tensor_map(scale_a.device, f32, {kM, scales}, {kBlockM, 1}, 0);
  const auto map_sb = tensor_map(scale_b.device, f32, {kN, scales}, {kBlockN, 1}, 0);
  const auto map_d = tensor_map(d.device, f32, {kN, cuuint64_t(groups) * kM}, {kBlockN, 64}, 0);
  const size_t shared = 256 + kBlockM * kBlockN * 4 +
                        kStages * ((kBlockM + kBlockN) * 128 + (kBlockM + kBlockN) * 4) + 1024;
  produce(a, b, scale_a, scale_b, d, layout);
  launch(deep_gemm::sm90_fp8_gemm_1d1d_impl < 0, 0, 0, kType == deep_gemm::GemmType::Normal ? 1 : 2,
         kBlockM, kBlockN, 128, 128, 128, kStages, 128, 256, 1, false, kSms, kType, float >, kSms,
         384, shared, 1, a.device, b.device, layout.device,
         reinterpret_cast<cute::TmaDescriptor*>(maps.device), kM, kN, int(k), map_a, map_b, map_sa,
         map_sb, map_d);
  d.down();
  for (int group = 0, start = 0; group < groups; start += depths[group++]) {
    for (int i = 0; i < kM * kN; ++i) {
      const int m = i / kN, n = i % kN;
      double want = before[group * kM * kN + i];
      for (int at = 0; at < depths[group]; ++at) {
        const int row = (start + at) / 128;
        want += a[start * kM + m * depths[group] + at] * b[start * kN + n * depths[group] + at] *
                scale_a[row * kM + m] * scale_b[row * kN + n];
      }
      if (!near("d", group * kM * kN + i, d[group * kM * kN + i], want, 1e-3)) return false;
    }
  }
  return true;
}

int main() {
  if (!right<deep_gemm::GemmType::Normal>({384})) return 2;
  return right<deep_gemm::GemmType::KGroupedContiguous>({256, 128}) ? 0 : 3;
}
