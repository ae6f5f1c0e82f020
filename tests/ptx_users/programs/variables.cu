// Variables of the device that the host reads and writes; a graph that a stream captures; managed
// memory; a template; atomics on a counter that each launch goes on with.
#include <cstdio>

#include "check.h"

__constant__ float factors[4];
__device__ unsigned launches;
__device__ float offset = 0.5f;
__device__ float* where = &offset;
__managed__ int last_block;

template <typename T, int N>
__global__ void scale(const T* x, T* y, int count) {
  __shared__ T tile[N];
  const int i = blockIdx.x * N + threadIdx.x;
  tile[threadIdx.x] = i < count ? x[i] : T(0);
  __syncthreads();
  if (i < count) y[i] = tile[N - 1 - threadIdx.x] * factors[i % 4] + *where;
  if (threadIdx.x == 0 && atomicAdd(&launches, 1u) == gridDim.x - 1) last_block = blockIdx.x;
}

constexpr int kCount = 128, kBlock = 64;

int main() {
  float *x, *y;
  CHECK(cudaMallocManaged(&x, kCount * sizeof(float)));
  CHECK(cudaMalloc(&y, kCount * sizeof(float)));
  for (int i = 0; i < kCount; ++i) x[i] = float(i);
  const float host[] = {1, 2, 3, 4};
  CHECK(cudaMemcpyToSymbol(factors, host, sizeof host));
  void* address = nullptr;
  CHECK(cudaGetSymbolAddress(&address, launches));
  CHECK(cudaMemset(address, 0, sizeof(unsigned)));

  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  scale<float, kBlock><<<kCount / kBlock, kBlock, 0, stream>>>(x, y, kCount);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  unsigned made = 1;
  CHECK(cudaMemcpyFromSymbol(&made, launches, sizeof made));
  if (made != 0) return 2;
  CHECK(cudaGraphLaunch(executable, stream));
  CHECK(cudaGraphLaunch(executable, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaMemcpyFromSymbol(&made, launches, sizeof made));
  if (made != 4) return 3;

  float result[kCount];
  CHECK(cudaMemcpy(result, y, sizeof result, cudaMemcpyDeviceToHost));
  for (int i = 0; i < kCount; ++i) {
    const int from = i / kBlock * kBlock + kBlock - 1 - i % kBlock;
    if (result[i] != float(from) * host[i % 4] + 0.5f) return 4;
  }
  // Beyond the variable.
  return cudaMemcpyToSymbol(factors, host, sizeof host, 4) == cudaErrorInvalidSymbol ? 0 : 5;
}
