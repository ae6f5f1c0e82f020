// CuTe's tutorial for Blackwell: the same by clusters of 4 × 4 CTAs that share their tiles.
#define main tutorial_main
#include "cute/tutorial/blackwell/03_mma_tma_multicast_sm100.cu"
#undef main

#include "blackwell_tutorial.hpp"

int main() {
  return product_of_tutorial(512, 1024, 128);
}
