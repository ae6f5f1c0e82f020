// A stream of its own copies what kernels are about to change; a graph allocates what it computes
// with, and leaves it to be copied and freed.
#include <cuda_runtime.h>

#include "check.h"

namespace {

constexpr int kCount = 64;

__global__ void fill(int* to, int value) {
  to[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
__global__ void read(const int* from, int* to) {
  to[blockIdx.x * blockDim.x + threadIdx.x] = from[0];
}

int graph_turns(cudaStream_t stream, int* host) {
  cudaMemAllocNodeParams wanted = {};
  wanted.poolProps.allocType = cudaMemAllocationTypePinned;
  wanted.poolProps.location.type = cudaMemLocationTypeDevice;
  wanted.bytesize = kCount * sizeof(int);
  cudaGraph_t graph;
  cudaGraphNode_t allocated, filled;
  CHECK(cudaGraphCreate(&graph, 0));
  CHECK(cudaGraphAddMemAllocNode(&allocated, graph, nullptr, 0, &wanted));
  int *memory = static_cast<int*>(wanted.dptr), value = 5;
  void* arguments[] = {&memory, &value};
  cudaKernelNodeParams kernel = {};
  kernel.func = reinterpret_cast<void*>(fill);
  kernel.gridDim = dim3(1);
  kernel.blockDim = dim3(kCount);
  kernel.kernelParams = arguments;
  CHECK(cudaGraphAddKernelNode(&filled, graph, &allocated, 1, &kernel));
  cudaGraphExec_t made;
  CHECK(cudaGraphInstantiate(&made, graph, 0));
  for (int turn = 0; turn < 2; ++turn) {
    CHECK(cudaGraphLaunch(made, stream));
    CHECK(cudaMemcpyAsync(host, memory, kCount * sizeof(int), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaFreeAsync(memory, stream));  // of the graph
    CHECK(cudaStreamSynchronize(stream));
    if (host[kCount - 1] != 5) return 1;
    host[kCount - 1] = 0;
  }
  return 0;
}

int graph_copies(cudaStream_t stream, int* host) {
  int *first, *second;
  CHECK(cudaMalloc(&first, sizeof(int)));
  CHECK(cudaMalloc(&second, sizeof(int)));
  fill<<<1, 1, 0, stream>>>(first, 1);
  fill<<<1, 1, 0, stream>>>(second, 2);
  cudaGraph_t graph;
  cudaGraphNode_t copy;
  cudaGraphExec_t made;
  CHECK(cudaGraphCreate(&graph, 0));
  CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, nullptr, 0, host, first, sizeof(int),
                                 cudaMemcpyDeviceToHost));
  CHECK(cudaGraphInstantiate(&made, graph, 0));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaFree(first));
  CHECK(cudaGraphExecMemcpyNodeSetParams1D(made, copy, host, second, sizeof(int),
                                           cudaMemcpyDeviceToHost));  // now of the second
  CHECK(cudaGraphLaunch(made, stream));
  CHECK(cudaStreamSynchronize(stream));
  return host[0] == 2 ? 0 : 1;
}

}  // namespace

int main() {
  int *device, *sums, *host;
  CHECK(cudaMalloc(&device, kCount * sizeof(int)));
  CHECK(cudaMalloc(&sums, kCount * sizeof(int)));
  CHECK(cudaMallocHost(&host, kCount * sizeof(int)));
  cudaStream_t main_one, side;
  CHECK(cudaStreamCreateWithFlags(&main_one, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  cudaEvent_t filled, taken, around;
  CHECK(cudaEventCreateWithFlags(&filled, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&taken, cudaEventDisableTiming));
  CHECK(cudaEventCreate(&around));
  fill<<<2, kCount / 2, 0, main_one>>>(device, 7);
  CHECK(cudaEventRecord(filled, main_one));
  CHECK(cudaStreamWaitEvent(side, filled, 0));
  CHECK(cudaMemcpyAsync(host, device, kCount * sizeof(int), cudaMemcpyDeviceToHost, side));
  CHECK(cudaEventRecord(taken, side));
  read<<<2, kCount / 2, 0, main_one>>>(device, sums);
  CHECK(cudaStreamWaitEvent(main_one, taken, 0));  // before the next
  fill<<<2, kCount / 2, 0, main_one>>>(device, 8);
  CHECK(cudaEventRecord(around, main_one));
  CHECK(cudaEventSynchronize(taken));
  if (host[kCount - 1] != 7) return 2;
  CHECK(cudaEventSynchronize(around));
  float ms;
  CHECK(cudaEventElapsedTime(&ms, around, around));
  if (graph_turns(side, host) != 0) return 3;
  if (graph_copies(side, host) != 0) return 4;
  if (cudaMalloc(&device, size_t{1} << 50) == cudaSuccess) return 5;  // too much
  (void)cudaGetLastError();
  fill<<<2, kCount / 2, 0, side>>>(sums, 9);
  (void)cudaGetLastError();
  CHECK(cudaMemcpyAsync(host, sums, kCount * sizeof(int), cudaMemcpyDeviceToHost, side));
  CHECK(cudaStreamSynchronize(side));
  return host[kCount - 1] == 9 ? 0 : 6;
}
