// CuTe's tutorial for Blackwell: a product with sums in tensor memory, whose tiles come by ordinary
// stores.
#define main tutorial_main
#include "cute/tutorial/blackwell/01_mma_sm100.cu"
#undef main

#include "blackwell_tutorial.hpp"

int main() {
  return product_of_tutorial(256, 512, 128);
}
