// A texture of an array, normalized coordinates, wrapping.
#include "sample.h"
__global__ void shift(cudaTextureObject_t image, float* out) {
  out[threadIdx.x] = tex2D<float>(image, (threadIdx.x + 4.5f) / 8, 0.25f);
}
int main() {
  float here[16], *out = managed<float>(8);
  for (int i = 0; i < 16; ++i) here[i] = i;
  const auto format = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  CHECK(cudaMallocArray(&array, &format, 8, 2));
  CHECK(cudaMemcpy2DToArray(array, 0, 0, here, 32, 32, 2, cudaMemcpyHostToDevice));
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray, resource.res.array.array = array;
  cudaTextureDesc how{};
  how.addressMode[0] = how.addressMode[1] = cudaAddressModeWrap, how.normalizedCoords = 1;
  cudaTextureObject_t image;
  CHECK(cudaCreateTextureObject(&image, &resource, &how, nullptr));
  shift<<<1, 8>>>(image, out);
  CHECK(cudaDeviceSynchronize());
  return verdict(out[0] == 4 && out[5] == 1);
}
