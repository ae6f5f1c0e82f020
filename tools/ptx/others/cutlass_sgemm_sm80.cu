// CUTLASS's tutorial sgemm_sm80.cu, on a small product in both layouts that it has.
#define main tutorial_main
#include <examples/cute/tutorial/sgemm_sm80.cu>
#undef main

#include "gemm.hpp"

int main() {
  return tutorial_verdict<cute::half_t>(256, 128, 256);
}
