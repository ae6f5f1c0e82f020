// What the device says of itself.
#include "sample.h"
int main() {
  int count = 0, major = 0, driver = 0, runtime = 0;
  CHECK(cudaGetDeviceCount(&count));
  cudaDeviceProp prop;
  CHECK(cudaGetDeviceProperties(&prop, 0));
  CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  CHECK(cudaDriverGetVersion(&driver)), CHECK(cudaRuntimeGetVersion(&runtime));
  size_t free_bytes, all_bytes;
  CHECK(cudaMemGetInfo(&free_bytes, &all_bytes));
  std::printf("%d %s %d.%d, %d SMs, %zu of %zu\n", count, prop.name, prop.major, prop.minor,
              prop.multiProcessorCount, free_bytes, all_bytes);
  return verdict(count >= 1 && prop.warpSize == 32 && prop.major == major && driver >= runtime);
}
