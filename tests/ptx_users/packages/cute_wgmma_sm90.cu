// CuTe's tutorial for Hopper: a product by wgmma whose tiles come by cp.async.
#define main tutorial_main
#include "cute/tutorial/hopper/wgmma_sm90.cu"
#undef main

#include "tutorial.hpp"

int main() {
  return product_of_tutorial<cute::half_t>(256, 128, 256);
}
