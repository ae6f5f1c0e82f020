// A graph in which one edge is programmatic: the second kernel begins early, and waits.
#include <cuda_runtime.h>

#include "check.h"

__global__ void fill(int* values) {
  values[threadIdx.x] = threadIdx.x;
}
__global__ void twice(int* values, int* results) {
  cudaGridDependencySynchronize();
  results[threadIdx.x] = 2 * values[threadIdx.x];
}

int main() {
  constexpr int kCount = 32;
  int *values, *results, found[kCount];
  CHECK(cudaMalloc(&values, sizeof found));
  CHECK(cudaMalloc(&results, sizeof found));
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  void* arguments[] = {&values, &results};
  cudaKernelNodeParams of = {reinterpret_cast<void*>(fill), 1, kCount, 0, arguments, nullptr};
  cudaGraphNode_t first, second, back;
  CHECK(cudaGraphAddKernelNode(&first, graph, nullptr, 0, &of));
  of.func = reinterpret_cast<void*>(twice);
  CHECK(cudaGraphAddKernelNode(&second, graph, nullptr, 0, &of));
  cudaGraphEdgeData early = {};
  early.from_port = cudaGraphKernelNodePortProgrammatic;
  early.type = cudaGraphDependencyTypeProgrammatic;
  CHECK(cudaGraphAddDependencies(graph, &first, &second, &early, 1));
  CHECK(cudaGraphAddMemcpyNode1D(&back, graph, &second, 1, found, results, sizeof found,
                                 cudaMemcpyDeviceToHost));
  cudaGraphExec_t executable;
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  CHECK(cudaGraphLaunch(executable, nullptr));
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < kCount; ++i) {
    if (found[i] != 2 * i) return 1;
  }
  return 0;
}
