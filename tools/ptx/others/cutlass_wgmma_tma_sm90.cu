// CUTLASS's tutorial hopper/wgmma_tma_sm90.cu, on a small product in both layouts that it has.
#define main tutorial_main
#include <examples/cute/tutorial/hopper/wgmma_tma_sm90.cu>
#undef main

#include "gemm.hpp"

int main() {
  constexpr int kM = 256, kN = 128, kK = 256;
  using T = cute::half_t;
  for (const bool by_columns : {true, false}) {
    const char of_a = by_columns ? 'N' : 'T', of_b = by_columns ? 'T' : 'N';
    const auto run = [&](const T* a, const T* b, T* c) {
      gemm(of_a, of_b, kM, kN, kK, T(1.0f), a, by_columns ? kM : kK, b, by_columns ? kN : kK,
           T(0.0f), c, kM);
    };
    if (!right<T, T, T>(by_columns, by_columns, kM, kN, kK, 1e-3, run)) return by_columns ? 1 : 2;
  }
  return 0;
}
