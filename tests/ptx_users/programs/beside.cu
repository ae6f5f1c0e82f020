// Kernels on streams that nothing orders hand data over by a flag while they run beside each other.
#include "check.h"

namespace {

constexpr int kCount = 256, kThreads = 64, kBlocks = kCount / kThreads;
constexpr unsigned kShared = 160 * 1024;  // one block of the consumer an SM

__global__ void produce(int* data, unsigned* flag, int value) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  data[at] = value + at;
  __syncthreads();
  if (threadIdx.x > 0) return;
  __threadfence();  // produce
  atomicAdd(flag, 1u);
}

__device__ void wait(const unsigned* flag, unsigned count) {
  if (threadIdx.x == 0) {
    while (*const_cast<const volatile unsigned*>(flag) < count) {
    }
    __threadfence();  // wait
  }
  __syncthreads();
}

__global__ void consume(const int* data, const unsigned* flag, int* sums, unsigned count) {
  wait(flag, count);
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  sums[at] = data[at] + data[kCount - 1 - at];
}

// Waits for one kernel, and hands on to another.
__global__ void relay(const int* data, const unsigned* flag, unsigned count, unsigned* next) {
  wait(flag, count);
  if (threadIdx.x == 0) {
    __threadfence();
    atomicExch(next, 1u);
  }
}

__global__ void gather(const int* data, int* sums) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  sums[at] += data[at];
}

}  // namespace

int main() {
  cudaStream_t streams[3];
  for (cudaStream_t& each : streams) {
    CHECK(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking));
  }
  int *data, *sums, *first;
  unsigned *flag, *next;
  CHECK(cudaMalloc(&data, kCount * sizeof(int)));
  CHECK(cudaMalloc(&sums, kCount * sizeof(int)));
  CHECK(cudaMalloc(&first, kCount * sizeof(int)));
  CHECK(cudaMalloc(&flag, sizeof *flag));
  CHECK(cudaMalloc(&next, sizeof *next));
  CHECK(cudaFuncSetAttribute(consume, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
  for (int turn = 0; turn < 2; ++turn) {
    CHECK(cudaMemset(flag, 0, sizeof *flag));
    CHECK(cudaMemset(next, 0, sizeof *next));
    CHECK(cudaMemset(first, 0, kCount * sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    // What is asked for last is done first here, so that each of them is in one of the turns.
    gather<<<kBlocks, kThreads, 0, streams[turn]>>>(first, first);
    if (turn == 0) produce<<<kBlocks, kThreads, 0, streams[0]>>>(data, flag, 3);
    consume<<<kBlocks, kThreads, kShared, streams[1]>>>(data, flag, sums, kBlocks);
    gather<<<kBlocks, kThreads, 0, streams[1]>>>(data, sums);
    if (turn == 1) produce<<<kBlocks, kThreads, 0, streams[0]>>>(data, flag, 3);
    CHECK(cudaDeviceSynchronize());
    int result[kCount];
    CHECK(cudaMemcpy(result, sums, sizeof result, cudaMemcpyDeviceToHost));
    for (int at = 0; at < kCount; ++at) {
      if (result[at] != 2 * 3 + kCount - 1 + 3 + at) return 2;
    }
  }
  CHECK(cudaMemset(flag, 0, sizeof *flag));
  CHECK(cudaMemset(next, 0, sizeof *next));
  CHECK(cudaDeviceSynchronize());
  consume<<<kBlocks, kThreads, kShared, streams[2]>>>(data, next, sums, 1);
  relay<<<1, kThreads, 0, streams[1]>>>(data, flag, kBlocks, next);
  produce<<<kBlocks, kThreads, 0, streams[0]>>>(data, flag, 4);
  CHECK(cudaDeviceSynchronize());
  return 0;
}
