// A bulk copy reads what threads wrote, without fence.proxy.async.
#include <cuda_runtime.h>

#include <cstdint>

__global__ void store(int* out) {
  __shared__ alignas(128) int tile[128];
  tile[threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) {
    const auto from = static_cast<uint32_t>(__cvta_generic_to_shared(tile));
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 512;" ::"l"(out),
                 "r"(from)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}

int main() {
  int* out;
  if (cudaMalloc(&out, 512) != cudaSuccess) return 1;
  store<<<1, 128>>>(out);
  return cudaDeviceSynchronize() != cudaSuccess;
}
