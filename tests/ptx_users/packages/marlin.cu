// Marlin: fp16 times weights of 4 bits in groups of 128, several CTAs of a column that wait for
// each other's sums.
#include "host.hpp"
#include "kernel.h"
#include "marlin_template.h"

// What a column's weight is, and where Marlin wants it: tiles of 16 × 64, in the order of its
// fragments.
std::vector<uint32_t> packed(const std::vector<int>& weight, int k, int n) {
  const int interleaved[] = {0, 2, 4, 6, 1, 3, 5, 7};
  std::vector<int> order;
  for (int lane = 0; lane < 32; ++lane) {
    for (int tile = 0; tile < 4; ++tile) {
      int eight[8], at = 0;
      for (const int block : {0, 1})
        for (const int row : {lane % 4 * 2, lane % 4 * 2 + 1, lane % 4 * 2 + 8, lane % 4 * 2 + 9})
          eight[at++] = 16 * row + lane / 4 + 8 * block + 256 * tile;
      for (const int each : interleaved) order.push_back(eight[each]);
    }
  }
  std::vector<uint32_t> out(k * n / 8);
  for (int at = 0; at < k * n; ++at) {
    const int strip = at / (16 * n), place = at % (16 * n) / 1024 * 1024 + order[at % 1024];
    const int tile = place / 256, row = place % 256 / 16, column = place % 16;
    out[at / 8] |= uint32_t(weight[(strip * 16 + row) * n + tile * 16 + column]) << at % 8 * 4;
  }
  return out;
}

int main() {
  constexpr int kM = 7, kN = 256, kK = 512, kGroup = 128, kCtas = 4;
  std::vector<int> weight(kK * kN);
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = int(i * 7919 % 1013 % 16);
  Array<half> a(kM * kK, 1), scales(kK / kGroup * kN, 2), c(kM * kN);
  const Array<uint32_t> b(packed(weight, kK, kN));
  Array<float> sums(kCtas * 64 * 256);
  Array<int> locks(64);
  CHECK(cudaMemset(locks.device, 0, 64 * sizeof(int)));
  const auto plain = scales.host;
  for (int at = 0; at < kK / kGroup * kN; ++at)
    scales.host[at] = plain[at / 64 * 64 + at % 8 * 8 + at % 64 / 8];
  scales.up();
  constexpr int kShared = 96 * 1024;
  auto kernel = marlin::Marlin<half, vllm::kU4B8.id(), vllm::kFloat16.id(), 128, 1, 8, 4, true, 4,
                               kGroup / 16, false>;
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
  for (const bool in_f32 : {true, false}) {
    kernel<<<kCtas, 128, kShared>>>(
        reinterpret_cast<int4*>(a.device), reinterpret_cast<int4*>(b.device),
        reinterpret_cast<int4*>(c.device), reinterpret_cast<int4*>(sums.device), nullptr,
        reinterpret_cast<int4*>(scales.device), nullptr, nullptr, nullptr, kK / kGroup, kM, kN, kK,
        kK, locks.device, false, false, in_f32, kShared);
    CHECK(cudaGetLastError());
    c.down();
    for (int at = 0; at < kM * kN; ++at) {
      double want = 0;
      for (int k = 0; k < kK; ++k) {
        want += a[at / kN * kK + k] * (weight[k * kN + at % kN] - 8) *
                double(float(plain[k / kGroup * kN + at % kN]));
      }
      if (!near("c", at, c[at], want, 2e-2)) return 2;
    }
  }
  return 0;
}
