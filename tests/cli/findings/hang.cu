// Thread 0 waits for two arrivals at a barrier that one thread arrives at.
#include <cuda_runtime.h>

#include <cstdint>

__global__ void produce(int* out) {
  __shared__ uint64_t full;
  __shared__ int value;
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(&full));
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 2;" ::"r"(at));
  __syncthreads();
  if (threadIdx.x == 32) {
    value = 42;
    asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(at) : "memory");
  }
  if (threadIdx.x == 0) {
    uint32_t done = 0;
    while (done == 0) {
      asm volatile(
          "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
          : "=r"(done)
          : "r"(at)
          : "memory");
    }
    *out = value;
  }
}

int main() {
  int* out;
  if (cudaMalloc(&out, sizeof(int)) != cudaSuccess) return 1;
  produce<<<1, 64>>>(out);
  return cudaDeviceSynchronize() != cudaSuccess;
}
