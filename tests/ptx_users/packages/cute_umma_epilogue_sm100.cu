// CuTe's tutorial for Blackwell: the same with an epilogue by TMA both ways.
#define main tutorial_main
#include "cute/tutorial/blackwell/05_mma_tma_epi_sm100.cu"
#undef main

#include "blackwell_tutorial.hpp"

int main() {
  return product_of_tutorial(512, 1024, 128);
}
