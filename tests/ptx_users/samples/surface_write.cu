// A surface is written, the array is copied.
#include "sample.h"
__global__ void paint(cudaSurfaceObject_t image) {
  surf2Dwrite<int>(threadIdx.x + 8 * blockIdx.x, image, threadIdx.x * 4, blockIdx.x);
}
int main() {
  int here[32];
  const auto format = cudaCreateChannelDesc<int>();
  cudaArray_t array;
  CHECK(cudaMallocArray(&array, &format, 8, 4, cudaArraySurfaceLoadStore));
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray, resource.res.array.array = array;
  cudaSurfaceObject_t image;
  CHECK(cudaCreateSurfaceObject(&image, &resource));
  paint<<<4, 8>>>(image);
  CHECK(cudaMemcpy2DFromArray(here, 32, array, 0, 0, 32, 4, cudaMemcpyDeviceToHost));
  return verdict(here[19] == 19);
}
