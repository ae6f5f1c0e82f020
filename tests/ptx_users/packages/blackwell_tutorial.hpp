// One launch of a gemm of CuTe's tutorials for Blackwell,
// D [m, n] = 2 · A [m, k] · B [n, k]ᵀ + C / 2.
#pragma once

#include "host.hpp"

inline int product_of_tutorial(int m, int n, int k) {
  using namespace cute;
  Array<half_t> a(size_t(m) * k, 1), b(size_t(n) * k, 2);
  Array<float> c(size_t(m) * n, 3), d(c.host.size());
  const auto rows = [](int count, int length) {
    return make_layout(make_shape(count, length), make_stride(length, Int<1>{}));
  };
  gemm_host_f16xf16_f32_f32_tnt(a.device, rows(m, k), b.device, rows(n, k), c.device, rows(m, n),
                                d.device, rows(m, n), 2.0f, 0.5f);
  CHECK(cudaGetLastError());
  d.down();
  for (int at = 0; at < m * n; ++at) {
    double want = 0.5 * c[at];
    for (int i = 0; i < k; ++i) want += 2 * a[at / n * size_t(k) + i] * b[at % n * size_t(k) + i];
    if (!near("d", at, d[at], want, 1e-3)) return 1;
  }
  return 0;
}
