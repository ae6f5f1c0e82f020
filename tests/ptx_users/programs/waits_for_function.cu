// The host waits for a function of its own that a stream calls, by an object of C++.
#include <atomic>
#include <future>

#include "check.h"

std::atomic<bool> called = false;
std::promise<void> call_made;

__global__ void fill(int* to) {
  to[threadIdx.x] = threadIdx.x;
}

int main() {
  int *made, *read;
  CHECK(cudaMalloc(&made, 32 * sizeof(int)));
  CHECK(cudaMallocHost(&read, 32 * sizeof(int)));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  fill<<<1, 32, 0, stream>>>(made);
  CHECK(cudaMemcpyAsync(read, made, 32 * sizeof(int), cudaMemcpyDeviceToHost, stream));
  const auto call = [](void*) {
    called = true;
    call_made.set_value();
  };
  CHECK(cudaLaunchHostFunc(stream, call, nullptr));
  call_made.get_future().wait();
  for (int i = 0; i < 32; ++i) {
    if (read[i] != i) return 1;
  }
  return 0;
}
