// CUTLASS's tutorial hopper/wgmma_sm90.cu, on a small product in both layouts that it has.
#define main tutorial_main
#include <examples/cute/tutorial/hopper/wgmma_sm90.cu>
#undef main

#include "gemm.hpp"

int main() {
  return tutorial_verdict<cute::half_t>(256, 128, 256);
}
