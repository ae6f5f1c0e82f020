// A graph of nodes: a fill, a copy, a kernel, the host.
#include "sample.h"
__global__ void twice(int* data) {
  data[threadIdx.x] *= 2;
}
void CUDART_CB done(void* flag) {
  *static_cast<bool*>(flag) = true;
}
int main() {
  int *a, *b;
  CHECK(cudaMalloc(&a, 128)), CHECK(cudaMalloc(&b, 128));
  bool called = false;
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t filled, copied, doubled, told;
  cudaMemsetParams fill = {};
  fill.dst = a, fill.value = 7, fill.elementSize = 4, fill.width = 32, fill.height = 1;
  CHECK(cudaGraphAddMemsetNode(&filled, graph, nullptr, 0, &fill));
  CHECK(cudaGraphAddMemcpyNode1D(&copied, graph, &filled, 1, b, a, 128, cudaMemcpyDeviceToDevice));
  void* arguments[] = {&b};
  cudaKernelNodeParams kernel = {};
  kernel.func = reinterpret_cast<void*>(twice), kernel.gridDim = 1, kernel.blockDim = 32;
  kernel.kernelParams = arguments;
  CHECK(cudaGraphAddKernelNode(&doubled, graph, &copied, 1, &kernel));
  cudaHostNodeParams host = {done, &called};
  CHECK(cudaGraphAddHostNode(&told, graph, &doubled, 1, &host));
  cudaGraphExec_t executable;
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  CHECK(cudaGraphLaunch(executable, nullptr)), CHECK(cudaDeviceSynchronize());
  int here[32];
  CHECK(cudaMemcpy(here, b, 128, cudaMemcpyDeviceToHost));
  return verdict(here[31] == 14 && called);
}
