// The driver API: streams, events, pinned and stream-ordered memory, fills, a context's stack.
#include <cuda.h>

#include "sample.h"

#define OK(call) \
  if (const int status = static_cast<int>(call)) return std::printf("%s: %d\n", #call, status), 1

__global__ void add(unsigned short* data, const unsigned* more) {
  data[threadIdx.x] += more[threadIdx.x];
}

int main() {
  CUdevice device;
  CUcontext context, current;
  OK(cuInit(0));
  OK(cuDeviceGet(&device, 0));
  OK(cuDevicePrimaryCtxRetain(&context, device));
  OK(cuCtxPushCurrent(context));
  OK(cuCtxPopCurrent(&current));
  OK(cuCtxSetCurrent(current));
  CUstream first, second;
  OK(cuStreamCreateWithPriority(&first, CU_STREAM_NON_BLOCKING, 0));
  OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  CUevent filled, done;
  OK(cuEventCreate(&filled, CU_EVENT_DEFAULT));
  OK(cuEventCreate(&done, CU_EVENT_DEFAULT));
  CUdeviceptr data, more;
  void* here;
  OK(cuMemHostAlloc(&here, 64, 0));
  OK(cuMemAllocAsync(&data, 64, first));
  OK(cuMemAllocAsync(&more, 128, first));
  OK(cuMemsetD16Async(data, 5, 32, first));
  OK(cuMemsetD32Async(more, 7, 32, first));
  OK(cuEventRecord(filled, first));
  OK(cuStreamWaitEvent(second, filled, 0));
  CUfunction function;
  OK(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(add)));
  int threads;
  OK(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
  void* arguments[] = {&data, &more};
  OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, second, arguments, nullptr));
  OK(cuMemcpyDtoHAsync(here, data, 64, second));
  OK(cuEventRecord(done, second));
  OK(cuEventSynchronize(done));
  float passed_ms;
  OK(cuEventElapsedTime(&passed_ms, filled, done));
  bool right = threads >= 32 && passed_ms > 0;
  for (int i = 0; i < 32; ++i) right &= static_cast<unsigned short*>(here)[i] == 12;
  OK(cuMemFreeAsync(data, second));
  OK(cuMemFreeAsync(more, second));
  OK(cuStreamSynchronize(second));
  OK(cuMemFreeHost(here));
  OK(cuEventDestroy(filled));
  OK(cuEventDestroy(done));
  OK(cuStreamDestroy(first));
  OK(cuStreamDestroy(second));
  return verdict(right);
}
