// Textures of linear, pitched and array memory, and surfaces: what each fetch gives is known.
#include <cmath>
#include <vector>

#include "check.h"

constexpr int kWidth = 8, kHeight = 4, kDepth = 3;

__global__ void fetch(cudaTextureObject_t linear, cudaTextureObject_t plane,
                      cudaTextureObject_t solid, cudaTextureObject_t layers, float* out) {
  const int x = threadIdx.x;
  out[x] = tex1Dfetch<float>(linear, x);
  out[8 + x] = tex2D<float>(plane, (x + 1.0f) / kWidth, 1.5f / kHeight);
  out[16 + x] = tex3D<float>(solid, x + 0.5f, 2.5f, 1.5f);
  out[24 + x] = tex2DLayered<float>(layers, x + 0.5f, 1.5f, 2);
}

__global__ void invert(cudaSurfaceObject_t image) {
  const int x = threadIdx.x, y = blockIdx.x;
  uchar4 pixel = surf2Dread<uchar4>(image, x * sizeof(uchar4), y);
  pixel.x = 255 - pixel.x;
  surf2Dwrite(pixel, image, x * sizeof(uchar4), y);
}

int texture(cudaTextureObject_t* made, const cudaResourceDesc& resource,
            cudaTextureFilterMode filter, bool normalized) {
  cudaTextureDesc how{};
  for (auto& each : how.addressMode) each = cudaAddressModeClamp;
  how.filterMode = filter;
  how.normalizedCoords = normalized;
  CHECK(cudaCreateTextureObject(made, &resource, &how, nullptr));
  return 0;
}

int main() {
  std::vector<float> values(kWidth * kHeight * kDepth);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i;
  const auto format = cudaCreateChannelDesc<float>();
  const size_t row = kWidth * sizeof(float);

  float* linear;
  CHECK(cudaMalloc(&linear, row));
  CHECK(cudaMemcpy(linear, values.data(), row, cudaMemcpyHostToDevice));
  cudaResourceDesc resources[4] = {};
  resources[0].resType = cudaResourceTypeLinear;
  resources[0].res.linear = {linear, format, row};

  float* pitched;
  size_t pitch;
  CHECK(cudaMallocPitch(&pitched, &pitch, row, kHeight));
  CHECK(cudaMemcpy2D(pitched, pitch, values.data(), row, row, kHeight, cudaMemcpyHostToDevice));
  resources[1].resType = cudaResourceTypePitch2D;
  resources[1].res.pitch2D = {pitched, format, kWidth, kHeight, pitch};

  cudaArray_t arrays[2];
  for (int i = 0; i < 2; ++i) {
    const cudaExtent extent = make_cudaExtent(kWidth, kHeight, kDepth);
    CHECK(cudaMalloc3DArray(&arrays[i], &format, extent, i == 0 ? 0 : cudaArrayLayered));
    cudaMemcpy3DParms box{};
    box.srcPtr = make_cudaPitchedPtr(values.data(), row, kWidth, kHeight);
    box.dstArray = arrays[i];
    box.extent = extent;
    box.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&box));
    resources[2 + i].resType = cudaResourceTypeArray;
    resources[2 + i].res.array.array = arrays[i];
  }
  cudaTextureObject_t textures[4];
  for (int i = 0; i < 4; ++i) {
    const auto filter = i == 1 ? cudaFilterModeLinear : cudaFilterModePoint;
    if (texture(&textures[i], resources[i], filter, i == 1) != 0) return 1;
  }
  float *there, here[32];
  CHECK(cudaMalloc(&there, sizeof here));
  fetch<<<1, kWidth>>>(textures[0], textures[1], textures[2], textures[3], there);
  CHECK(cudaMemcpy(here, there, sizeof here, cudaMemcpyDeviceToHost));
  for (int x = 0; x < kWidth; ++x) {
    const float between = x + 1 < kWidth ? x + 0.5f : x;
    const float wanted[] = {float(x), 8 + between, 32.0f + 16 + x, 64.0f + 8 + x};
    for (int i = 0; i < 4; ++i) {
      if (here[8 * i + x] != wanted[i]) {
        std::printf("fetch %d of %d: %g, not %g\n", i, x, here[8 * i + x], wanted[i]);
        return 1;
      }
    }
  }

  std::vector<uchar4> image(kWidth * kHeight), back(kWidth * kHeight);
  for (size_t i = 0; i < image.size(); ++i) image[i] = make_uchar4(i, 1, 2, 3);
  const auto pixels = cudaCreateChannelDesc<uchar4>();
  cudaArray_t array;
  CHECK(cudaMallocArray(&array, &pixels, kWidth, kHeight, cudaArraySurfaceLoadStore));
  CHECK(cudaMemcpy2DToArray(array, 0, 0, image.data(), row, row, kHeight, cudaMemcpyHostToDevice));
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaSurfaceObject_t surface;
  CHECK(cudaCreateSurfaceObject(&surface, &resource));
  invert<<<kHeight, kWidth>>>(surface);
  CHECK(cudaMemcpy2DFromArray(back.data(), row, array, 0, 0, row, kHeight, cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < back.size(); ++i) {
    if (back[i].x != 255 - i || back[i].w != 3) return 1;
  }
  CHECK(cudaDestroySurfaceObject(surface));
  for (const auto each : textures) CHECK(cudaDestroyTextureObject(each));
  for (const auto each : {array, arrays[0], arrays[1]}) CHECK(cudaFreeArray(each));
  return 0;
}
