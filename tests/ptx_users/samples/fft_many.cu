// Transforms of real numbers in a batch, and of two dimensions, between kernels in one stream.
#include <cufft.h>

#include <cmath>

#include "sample.h"

constexpr int kCount = 24, kBatch = 3, kRows = 6, kColumns = 10;

__global__ void scale(cufftReal* data, int count, float factor) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) data[at] *= factor;
}

int main() {
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cufftReal* wave = managed<cufftReal>(kBatch * kCount);
  cufftComplex* found = managed<cufftComplex>(kBatch * (kCount / 2 + 1));
  for (int batch = 0; batch < kBatch; ++batch) {
    for (int i = 0; i < kCount; ++i) {
      wave[batch * kCount + i] = std::cos(6.2831853f * (batch + 1) * i / kCount);
    }
  }
  cufftHandle there, back;
  if (cufftPlan1d(&there, kCount, CUFFT_R2C, kBatch)) return 1;
  if (cufftPlan1d(&back, kCount, CUFFT_C2R, kBatch)) return 1;
  if (cufftSetStream(there, stream) || cufftSetStream(back, stream)) return 1;
  if (cufftExecR2C(there, wave, found)) return 1;
  CHECK(cudaStreamSynchronize(stream));
  bool right = true;
  for (int batch = 0; batch < kBatch; ++batch) {
    for (int i = 0; i <= kCount / 2; ++i) {
      const float wanted = i == batch + 1 ? kCount / 2 : 0;
      const cufftComplex each = found[batch * (kCount / 2 + 1) + i];
      right &= std::fabs(each.x - wanted) < 1e-3f && std::fabs(each.y) < 1e-3f;
    }
  }
  if (cufftExecC2R(back, found, wave)) return 1;
  scale<<<3, 32, 0, stream>>>(wave, kBatch * kCount, 1.f / kCount);
  CHECK(cudaStreamSynchronize(stream));
  for (int i = 0; i < kBatch * kCount; ++i) {
    const int batch = i / kCount;
    right &=
        std::fabs(wave[i] - std::cos(6.2831853f * (batch + 1) * (i % kCount) / kCount)) < 1e-3f;
  }

  cufftDoubleComplex* plane = managed<cufftDoubleComplex>(kRows * kColumns);
  for (int i = 0; i < kRows * kColumns; ++i) plane[i] = {i == 0 ? 1.0 : 0.0, 0};
  int extents[] = {kRows, kColumns};
  cufftHandle both;
  if (cufftPlanMany(&both, 2, extents, nullptr, 1, 0, nullptr, 1, 0, CUFFT_Z2Z, 1)) return 1;
  if (cufftExecZ2Z(both, plane, plane, CUFFT_FORWARD)) return 1;
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < kRows * kColumns; ++i) right &= std::fabs(plane[i].x - 1) < 1e-9;
  if (cufftExecZ2Z(both, plane, plane, CUFFT_INVERSE)) return 1;
  CHECK(cudaDeviceSynchronize());
  right &= std::fabs(plane[0].x - kRows * kColumns) < 1e-9 && std::fabs(plane[1].x) < 1e-9;
  return verdict(right && !cufftDestroy(there) && !cufftDestroy(back) && !cufftDestroy(both));
}
