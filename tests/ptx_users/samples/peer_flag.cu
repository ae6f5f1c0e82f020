// Two GPUs: one writes into the other's memory and raises a flag there, for which a kernel waits.
#include <cuda/atomic>

#include "sample.h"
using Flag = cuda::atomic_ref<unsigned, cuda::thread_scope_system>;
__global__ void send(float* theirs, unsigned* flag) {
  theirs[threadIdx.x] = 2.0f * threadIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) Flag(*flag).store(1, cuda::memory_order_release);
}
__global__ void receive(const float* mine, unsigned* flag, float* sum) {
  if (threadIdx.x == 0) {
    while (Flag(*flag).load(cuda::memory_order_acquire) == 0) {
    }
  }
  __syncthreads();
  atomicAdd(sum, mine[threadIdx.x]);
}
int main() {
  need_two_gpus();
  float *mine, *sum, total = -1;
  unsigned* flag;
  CHECK(cudaSetDevice(1));
  CHECK(cudaMalloc(&mine, 64 * sizeof(float)));
  CHECK(cudaMalloc(&sum, sizeof(float)));
  CHECK(cudaMalloc(&flag, sizeof(unsigned)));
  CHECK(cudaMemset(sum, 0, sizeof(float)));
  CHECK(cudaMemset(flag, 0, sizeof(unsigned)));
  CHECK(cudaDeviceSynchronize());
  receive<<<1, 64>>>(mine, flag, sum);
  CHECK(cudaSetDevice(0));
  CHECK(cudaDeviceEnablePeerAccess(1, 0));
  send<<<1, 64>>>(mine, flag);
  CHECK(cudaSetDevice(1));
  CHECK(cudaMemcpy(&total, sum, sizeof(float), cudaMemcpyDeviceToHost));
  return verdict(total == 2.0f * 63 * 32);
}
