// A mipmapped array whose levels a kernel fills by surfaces, and another reads by texture.
#include "sample.h"
__global__ void halve(cudaTextureObject_t above, cudaSurfaceObject_t level, int extent) {
  const int x = threadIdx.x, y = threadIdx.y;
  const float u = (x + 0.5f) / extent, v = (y + 0.5f) / extent;
  surf2Dwrite(tex2D<float>(above, u, v) + 1, level, x * static_cast<int>(sizeof(float)), y);
}
__global__ void read(cudaTextureObject_t all, float* out) {
  out[threadIdx.x] = tex2DLod<float>(all, 0.5f, 0.5f, threadIdx.x * 0.5f);
}
cudaTextureObject_t texture_of(const cudaResourceDesc& resource, float last_level) {
  cudaTextureDesc how{};
  how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
  how.filterMode = how.mipmapFilterMode = cudaFilterModeLinear;
  how.normalizedCoords = 1;
  how.maxMipmapLevelClamp = last_level;
  cudaTextureObject_t made;
  CHECK(cudaCreateTextureObject(&made, &resource, &how, nullptr));
  return made;
}
int main() {
  constexpr int kExtent = 8, kLevels = 4;
  const auto format = cudaCreateChannelDesc<float>();
  cudaMipmappedArray_t all;
  CHECK(cudaMallocMipmappedArray(&all, &format, make_cudaExtent(kExtent, kExtent, 0), kLevels,
                                 cudaArraySurfaceLoadStore));
  float here[kExtent * kExtent];
  for (int i = 0; i < kExtent * kExtent; ++i) here[i] = i % kExtent < kExtent / 2 ? 1 : 3;
  cudaResourceDesc above{};
  above.resType = cudaResourceTypeArray;
  CHECK(cudaGetMipmappedArrayLevel(&above.res.array.array, all, 0));
  CHECK(cudaMemcpy2DToArray(above.res.array.array, 0, 0, here, sizeof here / kExtent,
                            sizeof here / kExtent, kExtent, cudaMemcpyHostToDevice));
  for (int level = 1; level < kLevels; ++level) {
    const int extent = kExtent >> level;
    cudaResourceDesc next = above;
    CHECK(cudaGetMipmappedArrayLevel(&next.res.array.array, all, level));
    const auto from = texture_of(above, 0);
    cudaSurfaceObject_t to;
    CHECK(cudaCreateSurfaceObject(&to, &next));
    halve<<<1, dim3(extent, extent)>>>(from, to, extent);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaDestroyTextureObject(from));
    CHECK(cudaDestroySurfaceObject(to));
    above = next;
  }
  cudaResourceDesc whole{};
  whole.resType = cudaResourceTypeMipmappedArray;
  whole.res.mipmap.mipmap = all;
  const auto texture = texture_of(whole, kLevels - 1);
  float* out = managed<float>(8);
  read<<<1, 8>>>(texture, out);
  CHECK(cudaDeviceSynchronize());
  bool right = true;
  for (int i = 0; i < 8; ++i) right &= out[i] == 2 + (i < 6 ? i * 0.5f : 3);
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFreeMipmappedArray(all));
  return verdict(right);
}
