// CuTe's tutorial for Ampere: a product whose tiles come by cp.async, three stages of them.
#define main tutorial_main
#include "cute/tutorial/sgemm_sm80.cu"
#undef main

#include "tutorial.hpp"

int main() {
  return product_of_tutorial<float>(256, 128, 64);
}
