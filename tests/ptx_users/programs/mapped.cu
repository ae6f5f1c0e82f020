// A host that polls pinned memory which a kernel writes, and reads what came before: right, since
// the flag is written with release at the scope of the system.
#include <cuda_runtime.h>

#include "check.h"

namespace {

__global__ void answer(int* data, int* flag) {
  data[0] = 42;
  asm volatile("st.release.sys.global.s32 [%0], 1;" ::"l"(flag) : "memory");
}

}  // namespace

int main() {
  int* shared;
  CHECK(cudaMallocHost(&shared, 2 * sizeof(int)));
  shared[0] = shared[1] = 0;
  answer<<<1, 1>>>(shared, shared + 1);
  while (*static_cast<volatile int*>(shared + 1) == 0) {
  }
  const int got = shared[0];
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaFreeHost(shared));
  return got == 42 ? 0 : 1;
}
