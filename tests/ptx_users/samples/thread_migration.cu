// Contexts of the driver, pushed and popped.
#include <cuda.h>

#include "sample.h"
int main() {
  CUdevice device;
  CUcontext context, current;
  if (cuInit(0) || cuDeviceGet(&device, 0) || cuCtxCreate(&context, nullptr, 0, device)) return 1;
  CUdeviceptr there;
  if (cuMemAlloc(&there, 64) || cuMemsetD32(there, 7, 16)) return 1;
  if (cuCtxPopCurrent(&current) || current != context || cuCtxPushCurrent(context)) return 1;
  int here[16];
  if (cuMemcpyDtoH(here, there, 64) || cuMemFree(there) || cuCtxDestroy(context)) return 1;
  return verdict(here[15] == 7);
}
