// A graph of nodes: memory of its own, a child graph, a copy of a box; other parameters, an update.
#include <cuda_runtime.h>

#include <cstdio>

__global__ void add(int* to, int value) {
  to[threadIdx.x] += value;
}
__global__ void sum(const int* from, int* to) {
  int all = 0;
  for (int i = 0; i < 32; ++i) all += from[i];
  *to = all;
}

#define OK(call)                                   \
  if (const int status = static_cast<int>(call)) { \
    std::printf("%s: %d\n", #call, status);        \
    return 1;                                      \
  }

int main() {
  int *result, host = 0;
  OK(cudaMalloc(&result, sizeof(int)));
  cudaGraph_t child, graph;
  OK(cudaGraphCreate(&child, 0));
  OK(cudaGraphCreate(&graph, 0));

  cudaGraphNode_t memory, clear, first, second, sums, used, back, freed;
  cudaMemAllocNodeParams wanted = {};
  wanted.bytesize = 32 * sizeof(int);
  wanted.poolProps.location = {cudaMemLocationTypeDevice, 0};
  OK(cudaGraphAddMemAllocNode(&memory, graph, nullptr, 0, &wanted));
  int* numbers = static_cast<int*>(wanted.dptr);

  cudaMemsetParams zeros = {};
  zeros.dst = numbers;
  zeros.elementSize = 4, zeros.width = 32, zeros.height = 1;
  OK(cudaGraphAddMemsetNode(&clear, child, nullptr, 0, &zeros));
  int value = 1;
  void* added[] = {&numbers, &value};
  cudaKernelNodeParams adds = {};
  adds.func = reinterpret_cast<void*>(add);
  adds.gridDim = dim3(1), adds.blockDim = dim3(32), adds.kernelParams = added;
  OK(cudaGraphAddKernelNode(&first, child, &clear, 1, &adds));
  OK(cudaGraphAddKernelNode(&second, child, &first, 1, &adds));
  OK(cudaGraphAddChildGraphNode(&sums, graph, &memory, 1, child));

  void* summed[] = {&numbers, &result};
  cudaKernelNodeParams use = {};
  use.func = reinterpret_cast<void*>(sum);
  use.gridDim = dim3(1), use.blockDim = dim3(1), use.kernelParams = summed;
  OK(cudaGraphAddKernelNode(&used, graph, &sums, 1, &use));
  cudaMemcpy3DParms box = {};
  box.srcPtr = make_cudaPitchedPtr(result, sizeof(int), 1, 1);
  box.dstPtr = make_cudaPitchedPtr(&host, sizeof(int), 1, 1);
  box.extent = make_cudaExtent(sizeof(int), 1, 1);
  box.kind = cudaMemcpyDeviceToHost;
  OK(cudaGraphAddMemcpyNode(&back, graph, &used, 1, &box));
  OK(cudaGraphAddMemFreeNode(&freed, graph, &used, 1, numbers));
  size_t count = 0;
  OK(cudaGraphGetNodes(graph, nullptr, &count));
  if (count != 5) return 2;
  cudaGraphNodeType type;
  OK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count));
  OK(cudaGraphNodeGetType(sums, &type));
  if (count != 4 || type != cudaGraphNodeTypeGraph) return 6;
  cudaGraphNode_t before[2];
  count = 2;
  OK(cudaGraphNodeGetDependencies(freed, before, nullptr, &count));
  if (count != 1 || before[0] != used || before[1] != nullptr) return 10;

  cudaGraphExec_t executable;
  OK(cudaGraphInstantiate(&executable, graph, 0));
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  for (int launch = 0; launch < 2; ++launch) {
    OK(cudaGraphLaunch(executable, stream));
    OK(cudaStreamSynchronize(stream));
    if (host != 64) return 3;
  }
  int other = 0;
  OK(cudaMemcpy(result, &other, sizeof other, cudaMemcpyHostToDevice));
  box.dstPtr.ptr = &other;
  OK(cudaGraphExecMemcpyNodeSetParams(executable, back, &box));
  OK(cudaGraphLaunch(executable, stream));
  OK(cudaStreamSynchronize(stream));
  if (other != 64) return 4;

  // The same graph with other parameters is an update; one of other nodes is none.
  OK(cudaMalloc(&numbers, 32 * sizeof(int)));
  zeros.dst = numbers;
  cudaGraphExec_t alone;
  OK(cudaGraphInstantiate(&alone, child, 0));
  cudaGraphExecUpdateResultInfo told;
  OK(cudaGraphMemsetNodeSetParams(clear, &zeros));
  OK(cudaGraphKernelNodeSetParams(first, &adds));
  value = 5;
  OK(cudaGraphKernelNodeSetParams(second, &adds));
  OK(cudaGraphExecUpdate(alone, child, &told));
  OK(cudaGraphLaunch(alone, stream));
  sum<<<1, 1, 0, stream>>>(numbers, result);
  OK(cudaStreamSynchronize(stream));
  OK(cudaMemcpy(&host, result, sizeof host, cudaMemcpyDeviceToHost));
  if (host != 6 * 32) return 5;
  if (cudaGraphExecUpdate(alone, graph, &told) != cudaErrorGraphExecUpdateFailure) return 6;
  if (told.result != cudaGraphExecUpdateErrorTopologyChanged) return 7;
  return 0;
}
