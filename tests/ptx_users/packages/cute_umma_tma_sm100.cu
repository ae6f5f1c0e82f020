// CuTe's tutorial for Blackwell: the same with tiles that come by TMA.
#define main tutorial_main
#include "cute/tutorial/blackwell/02_mma_tma_sm100.cu"
#undef main

#include "blackwell_tutorial.hpp"

int main() {
  return product_of_tutorial(256, 512, 128);
}
