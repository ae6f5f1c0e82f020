// What the programs around CUTLASS's tutorials share: a product of small integers, compared with
// one in double precision. It stands behind the tutorial, whose gemm() it calls.
#pragma once

#include <cmath>
#include <cstdio>
#include <vector>

// C [m, n] = A [m, k] · B [n, k]ᵀ with all three stored by columns for 'N' (of A) and 'T' (of B),
// by rows of k otherwise, as in BLAS. Whether `run(a, b, c)` on the GPU is right.
template <typename TA, typename TB, typename TC, typename Run>
bool right(bool a_by_columns, bool b_by_columns, int m, int n, int k, double tolerance, Run run) {
  std::vector<TA> a(m * k);
  std::vector<TB> b(n * k);
  std::vector<TC> c(m * n);
  for (int i = 0; i < m * k; ++i) a[i] = static_cast<TA>(float(i * 7 % 9 - 4));
  for (int i = 0; i < n * k; ++i) b[i] = static_cast<TB>(float(i * 5 % 7 - 3));
  TA* da;
  TB* db;
  TC* dc;
  cudaMalloc(&da, a.size() * sizeof(TA));
  cudaMalloc(&db, b.size() * sizeof(TB));
  cudaMalloc(&dc, c.size() * sizeof(TC));
  cudaMemcpy(da, a.data(), a.size() * sizeof(TA), cudaMemcpyHostToDevice);
  cudaMemcpy(db, b.data(), b.size() * sizeof(TB), cudaMemcpyHostToDevice);
  run(da, db, dc);
  if (cudaDeviceSynchronize() != cudaSuccess || cudaGetLastError() != cudaSuccess) return false;
  cudaMemcpy(c.data(), dc, c.size() * sizeof(TC), cudaMemcpyDeviceToHost);
  for (int row = 0; row < m; ++row) {
    for (int column = 0; column < n; ++column) {
      double want = 0;
      for (int at = 0; at < k; ++at) {
        const TA left = a_by_columns ? a[row + at * m] : a[row * k + at];
        const TB right_one = b_by_columns ? b[column + at * n] : b[column * k + at];
        want += double(float(left)) * double(float(right_one));
      }
      const double got = double(float(c[row + column * m]));
      if (!(std::fabs(got - want) <= tolerance * std::fmax(1, std::fabs(want)))) {
        std::printf("C[%d, %d] is %g, and should be %g\n", row, column, got, want);
        return false;
      }
    }
  }
  return true;
}

// What a program's main returns: 0 if the tutorial's gemm() is right in both layouts that it has.
template <typename T>
int tutorial_verdict(int m, int n, int k) {
  for (const bool by_columns : {true, false}) {
    const char of_a = by_columns ? 'N' : 'T', of_b = by_columns ? 'T' : 'N';
    const auto run = [&](const T* a, const T* b, T* c) {
      gemm(of_a, of_b, m, n, k, T(1.0f), a, by_columns ? m : k, b, by_columns ? n : k, T(0.0f), c,
           m);
    };
    if (!right<T, T, T>(by_columns, by_columns, m, n, k, 1e-3, run)) return by_columns ? 1 : 2;
  }
  return 0;
}
