// CUTLASS's tutorial sgemm_2.cu, on a small product in both layouts that it has.
#define main tutorial_main
#include <examples/cute/tutorial/sgemm_2.cu>
#undef main

#include "gemm.hpp"

int main() {
  return tutorial_verdict<float>(256, 128, 128);
}
