// A transform by cuFFT.
#include <cufft.h>

#include "sample.h"
int main() {
  auto* data = managed<cufftComplex>(16);
  for (int i = 0; i < 16; ++i) data[i] = {1, 0};
  cufftHandle plan;
  if (cufftPlan1d(&plan, 16, CUFFT_C2C, 1) != CUFFT_SUCCESS) return 1;
  if (cufftExecC2C(plan, data, data, CUFFT_FORWARD) != CUFFT_SUCCESS) return 1;
  CHECK(cudaDeviceSynchronize());
  return verdict(data[0].x == 16 && data[1].x == 0);
}
