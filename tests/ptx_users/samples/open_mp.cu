// Several threads of the host, each with a stream.
#include <thread>
#include <vector>

#include "sample.h"
__global__ void fill(int* data, int what) {
  data[threadIdx.x] = what;
}
int main() {
  int sums[4];
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&sums, i] {
      int *there, here[32];
      cudaStream_t stream;
      CHECK(cudaSetDevice(0)), CHECK(cudaStreamCreate(&stream)), CHECK(cudaMalloc(&there, 128));
      fill<<<1, 32, 0, stream>>>(there, i);
      CHECK(cudaMemcpyAsync(here, there, 128, cudaMemcpyDeviceToHost, stream));
      CHECK(cudaStreamSynchronize(stream));
      sums[i] = 0;
      for (int value : here) sums[i] += value;
    });
  }
  for (std::thread& each : threads) each.join();
  return verdict(sums[0] == 0 && sums[3] == 96);
}
