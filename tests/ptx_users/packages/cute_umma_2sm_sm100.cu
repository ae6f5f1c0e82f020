// CuTe's tutorial for Blackwell: the same by pairs of CTAs.
#define main tutorial_main
#include "cute/tutorial/blackwell/04_mma_tma_2sm_sm100.cu"
#undef main

#include "blackwell_tutorial.hpp"

int main() {
  return product_of_tutorial(512, 1024, 128);
}
