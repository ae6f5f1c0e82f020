// The host hands data to a kernel by a flag in mapped memory.
#include <cuda_runtime.h>

#include <cuda/atomic>

#include "check.h"

constexpr int kCount = 32;

__global__ void sum(const int* data, unsigned* flag, int* out) {
  if (threadIdx.x == 0) {
    cuda::atomic_ref<unsigned, cuda::thread_scope_system> set(*flag);
    while (set.load(cuda::memory_order_acquire) == 0) continue;
  }
  __syncthreads();
  const int all = __reduce_add_sync(0xffffffff, data[threadIdx.x]);
  if (threadIdx.x == 0) *out = all;
}

int main() {
  int *data, *out;
  unsigned* flag;
  CHECK(cudaHostAlloc(&data, kCount * sizeof *data, cudaHostAllocMapped));
  CHECK(cudaHostAlloc(&out, sizeof *out, cudaHostAllocMapped));
  CHECK(cudaHostAlloc(&flag, sizeof *flag, cudaHostAllocMapped));
  *flag = 0;
  sum<<<1, kCount>>>(data, flag, out);
  for (int i = 0; i < kCount; ++i) data[i] = i;
  __atomic_store_n(flag, 1u, __ATOMIC_RELEASE);
  CHECK(cudaDeviceSynchronize());
  return *out != kCount * (kCount - 1) / 2;
}
