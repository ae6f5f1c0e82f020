// Threads of the host, each with a default stream, and pinned memory.
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include <array>
#include <thread>

#include "sample.h"

constexpr int kThreads = 4, kCount = 256;

__global__ void twice(int* data) {
  data[blockIdx.x * blockDim.x + threadIdx.x] *= 2;
}

static int run(int number) {
  int *here, *there;
  CHECK(cudaMallocHost(&here, kCount * sizeof(int)));
  for (int i = 0; i < kCount; ++i) here[i] = i + number;
  CHECK(cudaMallocAsync(&there, kCount * sizeof(int), nullptr));
  CHECK(cudaMemcpyAsync(there, here, kCount * sizeof(int), cudaMemcpyHostToDevice, nullptr));
  twice<<<2, kCount / 2>>>(there);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpyAsync(here, there, kCount * sizeof(int), cudaMemcpyDeviceToHost, nullptr));
  CHECK(cudaStreamSynchronize(nullptr));
  for (int i = 0; i < kCount; ++i) {
    if (here[i] != 2 * (i + number)) return 1;
  }
  CHECK(cudaFreeAsync(there, nullptr));
  return 0;
}

int main() {
  std::array<int, kThreads> ended = {};
  std::array<std::thread, kThreads> threads;
  for (int i = 0; i < kThreads; ++i) threads[i] = std::thread([&, i] { ended[i] = run(i); });
  for (std::thread& each : threads) each.join();
  return verdict(ended == std::array<int, kThreads>{});
}
