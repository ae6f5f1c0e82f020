// Conditional nodes of a graph: a while node whose body is captured, an if node with an else, and a
// switch node behind it.
#include <cuda_runtime.h>

#include <cstdlib>

#include "check.h"

constexpr unsigned kCount = 64;

__global__ void fill(unsigned* values, unsigned* rounds) {
  values[threadIdx.x] = 100 + threadIdx.x;
  if (threadIdx.x == 0) *rounds = 0;
}
__global__ void halve(unsigned* values) {
  values[threadIdx.x] /= 2;
}
__global__ void decide(const unsigned* values, unsigned* rounds, cudaGraphConditionalHandle again,
                       cudaGraphConditionalHandle odd) {
  __shared__ unsigned most;
  if (threadIdx.x == 0) most = 0;
  __syncthreads();
  atomicMax(&most, values[threadIdx.x]);
  __syncthreads();
  if (threadIdx.x != 0) return;
  *rounds += 1;
  cudaGraphSetConditional(odd, *rounds % 2);
  cudaGraphSetConditional(again, most > 10);
}
__global__ void add(unsigned* values, unsigned by) {
  values[threadIdx.x] += by;
}

// A node of one kernel in a body.
cudaGraphNode_t kernel_node(cudaGraph_t graph, const void* kernel, void** arguments,
                            const cudaGraphNode_t* after, size_t count) {
  cudaGraphNodeParams of = {};
  of.type = cudaGraphNodeTypeKernel;
  of.kernel.func = const_cast<void*>(kernel);
  of.kernel.gridDim = dim3(1);
  of.kernel.blockDim = dim3(kCount);
  of.kernel.kernelParams = arguments;
  cudaGraphNode_t node;
  if (cudaGraphAddNode(&node, graph, after, nullptr, count, &of) != cudaSuccess) std::exit(1);
  return node;
}
cudaGraphNode_t conditional_node(cudaGraph_t graph, cudaGraphConditionalNodeType type,
                                 cudaGraphConditionalHandle handle, unsigned size,
                                 cudaGraphNode_t after, cudaGraph_t** bodies) {
  cudaGraphNodeParams of = {};
  of.type = cudaGraphNodeTypeConditional;
  of.conditional.handle = handle;
  of.conditional.type = type;
  of.conditional.size = size;
  cudaGraphNode_t node;
  if (cudaGraphAddNode(&node, graph, &after, nullptr, 1, &of) != cudaSuccess) std::exit(1);
  *bodies = of.conditional.phGraph_out;
  return node;
}

int main() {
  unsigned *values, *rounds, found[kCount];
  CHECK(cudaMalloc(&values, sizeof found));
  CHECK(cudaMalloc(&rounds, sizeof *rounds));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaGraph_t graph, *bodies;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle again, odd, which;
  CHECK(cudaGraphConditionalHandleCreate(&again, graph, 1, cudaGraphCondAssignDefault));
  CHECK(cudaGraphConditionalHandleCreate(&odd, graph));
  CHECK(cudaGraphConditionalHandleCreate(&which, graph, 1, cudaGraphCondAssignDefault));

  void* of_fill[] = {&values, &rounds};
  const cudaGraphNode_t first =
      kernel_node(graph, reinterpret_cast<const void*>(fill), of_fill, nullptr, 0);

  // while (again)
  const cudaGraphNode_t loop =
      conditional_node(graph, cudaGraphCondTypeWhile, again, 1, first, &bodies);
  CHECK(cudaStreamBeginCaptureToGraph(stream, bodies[0], nullptr, nullptr, 0,
                                      cudaStreamCaptureModeGlobal));
  halve<<<1, kCount, 0, stream>>>(values);
  decide<<<1, kCount, 0, stream>>>(values, rounds, again, odd);
  cudaGraph_t captured;
  CHECK(cudaStreamEndCapture(stream, &captured));

  // if (odd) add 1000; else add 2000;
  const cudaGraphNode_t branch =
      conditional_node(graph, cudaGraphCondTypeIf, odd, 2, loop, &bodies);
  unsigned by[] = {1000, 2000, 3, 5};
  for (int i = 0; i < 2; ++i) {
    void* of_add[] = {&values, &by[i]};
    kernel_node(bodies[i], reinterpret_cast<const void*>(add), of_add, nullptr, 0);
  }

  // switch (which)
  const cudaGraphNode_t last =
      conditional_node(graph, cudaGraphCondTypeSwitch, which, 2, branch, &bodies);
  for (int i = 0; i < 2; ++i) {
    void* of_add[] = {&values, &by[2 + i]};
    kernel_node(bodies[i], reinterpret_cast<const void*>(add), of_add, nullptr, 0);
  }
  cudaGraphNodeType type;
  CHECK(cudaGraphNodeGetType(last, &type));
  if (type != cudaGraphNodeTypeConditional) return 2;

  cudaGraphExec_t executable;
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  for (int launch = 0; launch < 2; ++launch) {
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaMemcpyAsync(found, values, sizeof found, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (unsigned i = 0; i < kCount; ++i) {
      // 163 takes four rounds to 10: even.
      if (found[i] != (100 + i) / 16 + 2000 + 5) return 1;
    }
  }
  CHECK(cudaGraphExecDestroy(executable));
  CHECK(cudaGraphDestroy(graph));
  return 0;
}
