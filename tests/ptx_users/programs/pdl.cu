// Programmatic dependent launches: a kernel that may begin before the one ahead of it has ended.
// Nothing is compared: what is in no order has to be found by the order alone.
#include <cuda_runtime.h>

#include <cstdio>

#include "check.h"

namespace {

constexpr int kThreads = 64, kBlocks = 4, kCount = kThreads * kBlocks;
constexpr size_t kBytes = kCount * sizeof(float);

__device__ int here() {
  return blockIdx.x * blockDim.x + threadIdx.x;
}

// Triggers before its stores: right as long as who comes next waits.
__global__ void produce(float* out, float value) {
  cudaTriggerProgrammaticLaunchCompletion();
  out[here()] = value;
}

// What nobody writes may be read before the wait.
__global__ void consume(const float* in, const float* weights, float* out) {
  const float weight = weights[here()];
  cudaGridDependencySynchronize();  // consume
  out[here()] = in[here()] * weight;
}

// Writes over what the one ahead of it reads.
__global__ void reuse(float* in, float value) {
  cudaGridDependencySynchronize();  // reuse
  in[here()] = value;
}
__global__ void read_late(const float* in, float* out) {
  cudaTriggerProgrammaticLaunchCompletion();
  out[here()] = in[here()] + 1;
}

// Reads through shared memory: all threads wait, or one and a barrier.
__global__ void gather(const float* in, float* out) {
  __shared__ float tile[kThreads];
  if (threadIdx.x == 0) cudaGridDependencySynchronize();  // gather
  __syncthreads();                                        // behind the wait
  tile[threadIdx.x] = in[here()];
  __syncthreads();
  out[here()] = tile[kThreads - 1 - threadIdx.x];
}

// Waits for the one ahead of it, and for nothing that is ahead of that unless it has waited.
__global__ void pass_by(float* other) {
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();  // pass by
  other[here()] = 1;
}

// Touches nothing of the one ahead of it and needs no wait.
__global__ void independent(float* other) {
  cudaTriggerProgrammaticLaunchCompletion();
  other[here()] = 2;
}

// Does not trigger: what comes next begins when it has ended, but for the flush of its memory.
__global__ void without_trigger(float* out, float value) {
  out[here()] = value;
}

template <typename... Parameters, typename... Arguments>
void early(cudaStream_t stream, void (*kernel)(Parameters...), Arguments... arguments) {
  cudaLaunchConfig_t config = {};
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.gridDim = kBlocks;
  config.blockDim = kThreads;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

float* device() {
  float* made = nullptr;
  cudaMalloc(&made, kBytes);
  cudaMemset(made, 0, kBytes);
  return made;
}

}  // namespace

int main() {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  float *a = device(), *b = device(), *weights = device(), *other = device(), *more = device();
  CHECK(cudaDeviceSynchronize());

  // A producer and its consumer.
  produce<<<kBlocks, kThreads, 0, stream>>>(a, 1);
  early(stream, consume, a, weights, b);
  CHECK(cudaDeviceSynchronize());

  // The same where the producer does not trigger.
  without_trigger<<<kBlocks, kThreads, 0, stream>>>(a, 1);
  early(stream, consume, a, weights, b);
  CHECK(cudaDeviceSynchronize());

  // A buffer that is used again.
  read_late<<<kBlocks, kThreads, 0, stream>>>(a, b);
  early(stream, reuse, a, 2.f);
  CHECK(cudaDeviceSynchronize());

  // One thread waits for its block.
  produce<<<kBlocks, kThreads, 0, stream>>>(a, 3);
  early(stream, gather, a, b);
  CHECK(cudaDeviceSynchronize());

  // Three in a row: the last one needs the first.
  produce<<<kBlocks, kThreads, 0, stream>>>(a, 4);
  early(stream, pass_by, other);
  early(stream, consume, a, weights, b);
  CHECK(cudaDeviceSynchronize());

  // Between two that have nothing in common, and before a launch that waits for all.
  produce<<<kBlocks, kThreads, 0, stream>>>(a, 5);
  early(stream, independent, more);
  consume<<<kBlocks, kThreads, 0, stream>>>(a, weights, b);
  CHECK(cudaDeviceSynchronize());

  // A copy between them: the launch is no dependent of a kernel.
  produce<<<kBlocks, kThreads, 0, stream>>>(a, 6);
  CHECK(cudaMemcpyAsync(b, a, kBytes, cudaMemcpyDeviceToDevice, stream));
  early(stream, independent, b);
  CHECK(cudaDeviceSynchronize());

  // A record of an event between them: behind one without timing the launch may begin early.
  cudaEvent_t plain, timed;
  CHECK(cudaEventCreateWithFlags(&plain, cudaEventDisableTiming));
  CHECK(cudaEventCreate(&timed));
  read_late<<<kBlocks, kThreads, 0, stream>>>(a, b);
  CHECK(cudaEventRecord(plain, stream));
  early(stream, reuse, a, 8.f);
  CHECK(cudaEventRecord(timed, stream));
  early(stream, independent, a);
  CHECK(cudaDeviceSynchronize());

  // In a graph that is captured.
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  produce<<<kBlocks, kThreads, 0, stream>>>(other, 7);
  early(stream, gather, other, b);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  CHECK(cudaGraphLaunch(executable, stream));
  CHECK(cudaGraphLaunch(executable, stream));
  CHECK(cudaDeviceSynchronize());
  std::puts("ok");
  return 0;
}
