// One launch of a gemm of CuTe's tutorials, C [m, n] = A [m, k] · B [n, k]ᵀ, by columns.
#pragma once

#include "host.hpp"

template <typename T>
int product_of_tutorial(int m, int n, int k) {
  Array<T> a(size_t(m) * k, 1), b(size_t(n) * k, 2), c(size_t(m) * n, 3);
  gemm('N', 'T', m, n, k, T(1.0f), a.device, m, b.device, n, T(0.0f), c.device, m);
  CHECK(cudaGetLastError());
  c.down();
  for (int at = 0; at < m * n; ++at) {
    double want = 0;
    for (int i = 0; i < k; ++i) want += a[at % m + size_t(i) * m] * b[at / m + size_t(i) * n];
    if (!near("c", at, c[at], want, 2e-2)) return 1;
  }
  return 0;
}
