// Threads of the host, each with a stream, memory and launches.
#include <array>
#include <thread>
#include <vector>

#include "check.h"

namespace {

constexpr int kThreads = 6, kCount = 64;

__global__ void add(int* data, int what) {
  data[threadIdx.x] += what;
}

int run(int number, int* sum) {
  int* there;
  cudaStream_t stream;
  cudaEvent_t done;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaEventCreate(&done));
  CHECK(cudaMalloc(&there, kCount * sizeof(int)));
  CHECK(cudaMemsetAsync(there, 0, kCount * sizeof(int), stream));
  for (int turn = 0; turn < 3; ++turn) add<<<1, kCount, 0, stream>>>(there, number);
  std::array<int, kCount> here;
  CHECK(cudaMemcpyAsync(here.data(), there, sizeof here, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaEventRecord(done, stream));
  CHECK(cudaEventSynchronize(done));
  for (int each : here) *sum += each;
  CHECK(cudaFree(there));
  CHECK(cudaStreamDestroy(stream));
  return 0;
}

}  // namespace

int main() {
  std::array<int, kThreads> sums = {}, ended = {};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] { ended[i] = run(i, &sums[i]); });
  }
  for (std::thread& each : threads) each.join();
  for (int i = 0; i < kThreads; ++i) {
    if (ended[i] != 0 || sums[i] != 3 * i * kCount) return 2;
  }
  return 0;
}
