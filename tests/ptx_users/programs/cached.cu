// What one kernel has written, another one reads by the read-only cache, a texture, a surface.
#include <cuda_runtime.h>

#include "check.h"

constexpr int kCount = 64;

__global__ void fill(int* values, cudaSurfaceObject_t image) {
  values[threadIdx.x] = threadIdx.x;
  surf1Dwrite<int>(threadIdx.x, image, 4 * threadIdx.x);
}

__global__ void read(int* values, cudaSurfaceObject_t image, cudaTextureObject_t texture,
                     int* out) {
  const int other = threadIdx.x ^ 1;
  values[threadIdx.x + kCount] = 1;  // of the loads below none is of these
  // here
  __syncthreads();
  out[threadIdx.x] =
      __ldg(values + other) + tex1D<int>(texture, other) + surf1Dread<int>(image, 4 * other);
}

int main() {
  int *values, *out, found[kCount];
  CHECK(cudaMalloc(&values, 2 * kCount * sizeof(int)));
  CHECK(cudaMalloc(&out, kCount * sizeof(int)));
  cudaArray_t array;
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<int>();
  CHECK(cudaMallocArray(&array, &format, kCount, 0, cudaArraySurfaceLoadStore));
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaTextureDesc description = {};
  cudaSurfaceObject_t image;
  cudaTextureObject_t texture;
  CHECK(cudaCreateSurfaceObject(&image, &resource));
  CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
  fill<<<1, kCount>>>(values, image);
  read<<<1, kCount>>>(values, image, texture, out);
  CHECK(cudaMemcpy(found, out, sizeof found, cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (int i = 0; i < kCount; ++i) wrong += found[i] != 3 * (i ^ 1);
  return wrong != 0;
}
