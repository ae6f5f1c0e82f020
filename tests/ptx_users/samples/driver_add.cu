// The driver API: contexts, memory and a launch, the kernel by its symbol.
#include <cuda.h>

#include "sample.h"
__global__ void add(const float* a, const float* b, float* c, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) c[i] = a[i] + b[i];
}
int main() {
  CUdevice device;
  CUcontext context;
  if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS) return 1;
  if (cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) return 1;
  if (cuCtxSetCurrent(context) != CUDA_SUCCESS) return 1;
  CUdeviceptr a, b, c;
  if (cuMemAlloc(&a, 400) || cuMemAlloc(&b, 400) || cuMemAlloc(&c, 400)) return 1;
  float here[100];
  for (int i = 0; i < 100; ++i) here[i] = i;
  if (cuMemcpyHtoD(a, here, 400) || cuMemcpyHtoD(b, here, 400)) return 1;
  cudaFunction_t symbol;
  CHECK(cudaGetFuncBySymbol(&symbol, reinterpret_cast<const void*>(add)));
  int count = 100;
  void* arguments[] = {&a, &b, &c, &count};
  if (cuLaunchKernel(reinterpret_cast<CUfunction>(symbol), 4, 1, 1, 32, 1, 1, 0, nullptr, arguments,
                     nullptr)) {
    return 1;
  }
  if (cuCtxSynchronize() || cuMemcpyDtoH(here, c, 400)) return 1;
  return verdict(here[99] == 198 && cuMemFree(a) == CUDA_SUCCESS);
}
