// A mipmapped array's levels.
#include "sample.h"
int main() {
  const auto format = cudaCreateChannelDesc<float>();
  cudaMipmappedArray_t made;
  cudaArray_t level;
  CHECK(cudaMallocMipmappedArray(&made, &format, make_cudaExtent(8, 8, 0), 3));
  CHECK(cudaGetMipmappedArrayLevel(&level, made, 1));
  cudaExtent extent;
  CHECK(cudaArrayGetInfo(nullptr, &extent, nullptr, level));
  return verdict(extent.width == 4);
}
