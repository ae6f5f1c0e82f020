// A host that polls one flag for each CTA in mapped memory, and reads what came before it.
#include <cuda_runtime.h>

#include "check.h"

namespace {

constexpr int kBlocks = 3;

__global__ void answer(volatile int* results, volatile int* flags) {
  results[blockIdx.x] = 7 * (blockIdx.x + 1);
  __threadfence_system();
  flags[blockIdx.x] = 1;
}

}  // namespace

int main() {
  int *mapped, *device;
  CHECK(cudaHostAlloc(&mapped, 256, cudaHostAllocMapped));
  CHECK(cudaHostGetDevicePointer(&device, mapped, 0));
  for (int at = 0; at < 64; ++at) mapped[at] = 0;
  answer<<<kBlocks, 1>>>(device, device + 32);
  CHECK(cudaGetLastError());
  int wrong = 0;
  for (int block = 0; block < kBlocks; ++block) {
    while (__atomic_load_n(mapped + 32 + block, __ATOMIC_ACQUIRE) == 0) {
    }
    wrong += mapped[block] != 7 * (block + 1);
  }
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaFreeHost(mapped));
  return wrong != 0;
}
