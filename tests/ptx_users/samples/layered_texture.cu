// Layers of a texture.
#include "sample.h"
__global__ void read(cudaTextureObject_t texture, float* out) {
  const int x = threadIdx.x % 8, y = threadIdx.x / 8;
  out[blockIdx.x * 64 + threadIdx.x] = tex2DLayered<float>(texture, x + 0.5f, y + 0.5f, blockIdx.x);
}
int main() {
  float here[128], *out = managed<float>(128);
  for (int i = 0; i < 128; ++i) here[i] = i;
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  CHECK(cudaMalloc3DArray(&array, &format, make_cudaExtent(8, 8, 2), cudaArrayLayered));
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(here, 32, 8, 8), copy.dstArray = array;
  copy.extent = make_cudaExtent(8, 8, 2), copy.kind = cudaMemcpyHostToDevice;
  CHECK(cudaMemcpy3D(&copy));
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeArray, resource.res.array.array = array;
  cudaTextureDesc how = {};
  how.readMode = cudaReadModeElementType;
  cudaTextureObject_t texture;
  CHECK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
  read<<<2, 64>>>(texture, out);
  CHECK(cudaDeviceSynchronize());
  return verdict(out[0] == 0 && out[127] == 127);
}
