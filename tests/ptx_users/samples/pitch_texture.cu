// A texture of pitched memory, filtered.
#include "sample.h"
__global__ void read(cudaTextureObject_t texture, float* out) {
  out[threadIdx.x] = tex2D<float>(texture, threadIdx.x + 1.0f, 1.5f);
}
int main() {
  float here[64], *there, *out = managed<float>(8);
  for (int i = 0; i < 64; ++i) here[i] = i;
  size_t pitch;
  CHECK(cudaMallocPitch(&there, &pitch, 32, 8));
  CHECK(cudaMemcpy2D(there, pitch, here, 32, 32, 8, cudaMemcpyHostToDevice));
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypePitch2D, resource.res.pitch2D.devPtr = there;
  resource.res.pitch2D.desc = cudaCreateChannelDesc<float>();
  resource.res.pitch2D.width = resource.res.pitch2D.height = 8;
  resource.res.pitch2D.pitchInBytes = pitch;
  cudaTextureDesc how = {};
  how.filterMode = cudaFilterModeLinear, how.readMode = cudaReadModeElementType;
  how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
  cudaTextureObject_t texture;
  CHECK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
  read<<<1, 8>>>(texture, out);
  CHECK(cudaDeviceSynchronize());
  return verdict(out[0] == 8.5f && out[6] == 14.5f && out[7] == 15);
}
