// A texture in three dimensions, filtered.
#include "sample.h"
__global__ void read(cudaTextureObject_t texture, float* out) {
  out[threadIdx.x] = tex3D<float>(texture, 0.25f, 0.5f, (threadIdx.x + 0.5f) / 4);
}
int main() {
  float here[64], *out = managed<float>(4);
  for (int i = 0; i < 64; ++i) here[i] = i;
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  CHECK(cudaMalloc3DArray(&array, &format, make_cudaExtent(4, 4, 4)));
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(here, 16, 4, 4), copy.dstArray = array;
  copy.extent = make_cudaExtent(4, 4, 4), copy.kind = cudaMemcpyHostToDevice;
  CHECK(cudaMemcpy3D(&copy));
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeArray, resource.res.array.array = array;
  cudaTextureDesc how = {};
  how.normalizedCoords = 1, how.filterMode = cudaFilterModeLinear;
  cudaTextureObject_t texture;
  CHECK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
  read<<<1, 4>>>(texture, out);
  CHECK(cudaDeviceSynchronize());
  return verdict(out[0] == 6.5f && out[3] == 54.5f);
}
