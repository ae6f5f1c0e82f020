// A graph whose nodes wait for an event of another stream, and record one for it.
#include "check.h"

constexpr int kCount = 256;

__global__ void put(int* to, int value) {
  to[threadIdx.x] = value;
}

int main() {
  int *made, *read;
  CHECK(cudaMalloc(&made, kCount * sizeof(int)));
  CHECK(cudaMallocHost(&read, kCount * sizeof(int)));
  cudaStream_t one, other;
  CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  cudaEvent_t ready, done;
  CHECK(cudaEventCreate(&ready));
  CHECK(cudaEventCreate(&done));

  cudaGraph_t graph;
  cudaGraphNode_t wait, kernel, record;
  CHECK(cudaGraphCreate(&graph, 0));
  CHECK(cudaGraphAddEventWaitNode(&wait, graph, nullptr, 0, ready));
  int value = 0;
  void* arguments[] = {&made, &value};
  cudaKernelNodeParams node = {};
  node.func = reinterpret_cast<void*>(put);
  node.gridDim = node.blockDim = dim3(1);
  node.blockDim.x = kCount;
  node.kernelParams = arguments;
  CHECK(cudaGraphAddKernelNode(&kernel, graph, &wait, 1, &node));  // waits
  CHECK(cudaGraphAddEventRecordNode(&record, graph, &kernel, 1, done));
  cudaGraphExec_t graph_of_events;
  CHECK(cudaGraphInstantiate(&graph_of_events, graph, 0));

  // What a node has is read and changed.
  cudaGraphNodeType type;
  CHECK(cudaGraphNodeGetType(kernel, &type));
  CHECK(cudaGraphKernelNodeGetParams(kernel, &node));
  if (type != cudaGraphNodeTypeKernel || node.blockDim.x != kCount) return 2;
  value = 5;
  node.kernelParams = arguments;
  CHECK(cudaGraphExecKernelNodeSetParams(graph_of_events, kernel, &node));

  put<<<1, kCount, 0, other>>>(made, 1);
  CHECK(cudaEventRecord(ready, other));
  CHECK(cudaGraphLaunch(graph_of_events, one));
  CHECK(cudaStreamWaitEvent(other, done, 0));  // the graph's
  CHECK(cudaMemcpyAsync(read, made, kCount * sizeof(int), cudaMemcpyDeviceToHost, other));
  CHECK(cudaStreamSynchronize(other));
  CHECK(cudaStreamSynchronize(one));
  return read[kCount - 1] == 5 ? 0 : 1;
}
