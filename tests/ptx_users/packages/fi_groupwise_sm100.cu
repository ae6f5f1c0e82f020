// FlashInfer's fp8 product for Blackwell by CUTLASS's collectives, with scales of 1 × 128 of A and
// of 128 × 128 of B that a warpgroup applies: by one CTA and by pairs.
#include "host.hpp"
//
#include <flashinfer/gemm/gemm_groupwise_sm100.cuh>

template <int kSms>
bool right(int m, int n, int k) {
  using T = cutlass::float_e4m3_t;
  const int blocks = k / 128;
  Array<T> a(size_t(m) * k, 1), b(size_t(n) * k, 2);
  Array<float> of_a(size_t(m) * blocks, 3), of_b(size_t(n / 128) * blocks, 4);
  Array<cutlass::bfloat16_t> d(size_t(m) * n);
  Array<uint8_t> space(1 << 20);
  CHECK((flashinfer::gemm::CutlassGroupwiseScaledGEMMSM100<1, 128, 128, true, kSms>(
      space.device, space.host.size(), a.device, b.device, of_a.device, of_b.device, d.device, m, n,
      k, 1, nullptr)));
  d.down();
  for (int at = 0; at < m * n; ++at) {
    const int row = at / n, column = at % n;
    double want = 0;
    for (int i = 0; i < k; ++i)
      want += a[size_t(row) * k + i] * b[size_t(column) * k + i] * of_a[row * blocks + i / 128] *
              of_b[column / 128 * blocks + i / 128];
    if (!near("d", at, d[at], want, 1e-2)) return false;
  }
  return true;
}

int main() {
  if (!right<1>(128, 256, 256)) return 2;
  return right<2>(256, 128, 384) ? 0 : 3;
}
