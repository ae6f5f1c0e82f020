// A dependent launch that may fill the GPU while the launch ahead of it waits for a third one, on
// another stream: it may begin only once nothing is waited for (sglang#34789 hung with all SMs
// full of a kernel that waited for one most of whose CTAs had no SM).
#include <cuda_runtime.h>

#include "check.h"

namespace {

constexpr int kThreads = 64, kBlocks = 4, kCount = kBlocks * kThreads;
constexpr int kMany = 160;                                 // more than SMs
constexpr unsigned kWide = 200 << 10, kNarrow = 64 << 10;  // shared memory: not both on one SM

// Brings what the product needs, and says so.
__global__ void gather(int* weights, unsigned* ready) {
  weights[threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (threadIdx.x > 0) return;
  __threadfence();
  atomicExch(ready, 1u);
}
__global__ void product(const unsigned* ready, const int* weights, int* out) {
  // at first
  if (threadIdx.x == 0) {
    while (*const_cast<const volatile unsigned*>(ready) == 0) {
    }
    __threadfence();
  }
  __syncthreads();
  cudaTriggerProgrammaticLaunchCompletion();  // behind what it waits for
  out[blockIdx.x * kThreads + threadIdx.x] = weights[threadIdx.x];
}
__global__ void finalize(const int* in, int* out) {
  cudaGridDependencySynchronize();
  const int at = blockIdx.x * kThreads + threadIdx.x;
  out[at] = in[at % kCount] + 1;
}

}  // namespace

int main() {
  int *weights, *products, *out;
  unsigned* ready;
  CHECK(cudaMalloc(&weights, kThreads * sizeof(int)));
  CHECK(cudaMalloc(&products, kCount * sizeof(int)));
  CHECK(cudaMalloc(&out, kMany * kThreads * sizeof(int)));
  CHECK(cudaMalloc(&ready, sizeof *ready));
  CHECK(cudaMemset(ready, 0, sizeof *ready));
  CHECK(cudaFuncSetAttribute(finalize, cudaFuncAttributeMaxDynamicSharedMemorySize, kWide));
  CHECK(cudaFuncSetAttribute(gather, cudaFuncAttributeMaxDynamicSharedMemorySize, kNarrow));
  cudaStream_t first, second;
  CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  CHECK(cudaDeviceSynchronize());
  product<<<kBlocks, kThreads, 0, first>>>(ready, weights, products);
  cudaLaunchConfig_t config = {};
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.gridDim = kMany;
  config.blockDim = kThreads;
  config.dynamicSmemBytes = kWide;
  config.stream = first;
  config.attrs = &attribute;
  config.numAttrs = 1;
  CHECK(cudaLaunchKernelEx(&config, finalize, static_cast<const int*>(products), out));
  gather<<<1, kThreads, kNarrow, second>>>(weights, ready);
  CHECK(cudaStreamSynchronize(first));
  CHECK(cudaDeviceSynchronize());
  return 0;
}
