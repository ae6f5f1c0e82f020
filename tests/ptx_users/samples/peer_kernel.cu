// Two GPUs: a kernel of each reads the other's memory, in turn.
#include "sample.h"
__global__ void doubled(const float* from, float* to) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  to[i] = 2 * from[i];
}
int main() {
  need_two_gpus();
  int forth, back;
  CHECK(cudaDeviceCanAccessPeer(&forth, 0, 1)), CHECK(cudaDeviceCanAccessPeer(&back, 1, 0));
  if (!forth || !back) return 2;
  constexpr size_t kCount = 256, kBytes = kCount * sizeof(float);
  float *first, *second, *here;
  CHECK(cudaSetDevice(0));
  CHECK(cudaDeviceEnablePeerAccess(1, 0));
  CHECK(cudaMalloc(&first, kBytes));
  CHECK(cudaSetDevice(1));
  CHECK(cudaDeviceEnablePeerAccess(0, 0));
  if (cudaDeviceEnablePeerAccess(0, 0) != cudaErrorPeerAccessAlreadyEnabled) return 1;
  cudaGetLastError();
  CHECK(cudaMalloc(&second, kBytes));
  CHECK(cudaMallocHost(&here, kBytes));
  for (size_t i = 0; i < kCount; ++i) here[i] = i % 64;
  CHECK(cudaSetDevice(0));
  CHECK(cudaMemcpy(first, here, kBytes, cudaMemcpyDefault));
  CHECK(cudaSetDevice(1));
  doubled<<<4, 64>>>(first, second);
  CHECK(cudaDeviceSynchronize());  // forth
  CHECK(cudaSetDevice(0));
  doubled<<<4, 64>>>(second, first);
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(here, first, kBytes, cudaMemcpyDefault));
  cudaPointerAttributes of;
  CHECK(cudaPointerGetAttributes(&of, second));
  CHECK(cudaDeviceDisablePeerAccess(1));
  if (cudaDeviceDisablePeerAccess(1) != cudaErrorPeerAccessNotEnabled) return 1;
  return verdict(here[63] == 4 * 63 && of.device == 1);
}
