// CUTLASS's tutorial blackwell/04_mma_tma_2sm_sm100.cu, on a small product; it compares by itself.
#define main tutorial_main
#include <examples/cute/tutorial/blackwell/04_mma_tma_2sm_sm100.cu>
#undef main

#include "says.hpp"

int main() {
  return says_so("Execution is successful", {"512", "1024", "64"}, tutorial_main) ? 0 : 1;
}
