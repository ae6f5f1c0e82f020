// The dependent kernel reads before it waits for the grid that writes.
#include <cuda_runtime.h>

__global__ void produce(int* data) {
  cudaTriggerProgrammaticLaunchCompletion();
  data[threadIdx.x] = threadIdx.x;
}

__global__ void consume(int* out, const int* data) {
  const int value = data[threadIdx.x];
  cudaGridDependencySynchronize();
  out[threadIdx.x] = value;
}

int main() {
  int *data, *out;
  if (cudaMalloc(&data, 128) != cudaSuccess || cudaMalloc(&out, 128) != cudaSuccess) return 1;
  if (cudaMemset(data, 0, 128) != cudaSuccess) return 1;
  produce<<<1, 32>>>(data);
  cudaLaunchAttribute early[1] = {};
  early[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early[0].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = 1;
  config.blockDim = 32;
  config.attrs = early;
  config.numAttrs = 1;
  if (cudaLaunchKernelEx(&config, consume, out, static_cast<const int*>(data)) != cudaSuccess)
    return 1;
  return cudaDeviceSynchronize() != cudaSuccess;
}
