// Two GPUs, each with a thread of the host, which begins with GPU 0.
#include <thread>
#include <vector>

#include "sample.h"
__global__ void scale(float* data, float by) {
  data[threadIdx.x] *= by;
}
int main() {
  need_two_gpus();
  constexpr size_t kBytes = 64 * sizeof(float);
  float* there[2];
  float here[2][64];
  for (int gpu = 0; gpu < 2; ++gpu) {
    for (float& each : here[gpu]) each = 3;
    CHECK(cudaSetDevice(gpu));
    CHECK(cudaMalloc(&there[gpu], kBytes));
    CHECK(cudaMemcpy(there[gpu], here[gpu], kBytes, cudaMemcpyDefault));
  }
  std::vector<std::thread> threads;
  for (int gpu = 0; gpu < 2; ++gpu) {
    threads.emplace_back([&, gpu] {
      CHECK(cudaSetDevice(gpu));  // of the thread
      scale<<<1, 64>>>(there[gpu], gpu + 2);
      CHECK(cudaDeviceSynchronize());  // of the thread
    });
  }
  for (std::thread& each : threads) each.join();
  int now;
  CHECK(cudaGetDevice(&now));
  CHECK(cudaSetDevice(0));
  for (int gpu = 0; gpu < 2; ++gpu) {
    CHECK(cudaMemcpy(here[gpu], there[gpu], kBytes, cudaMemcpyDefault));
  }
  return verdict(now == 1 && here[0][63] == 6 && here[1][0] == 9);
}
