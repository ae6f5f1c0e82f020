// Two GPUs, one thread of the host: each adds its half, in a stream of its own.
#include "sample.h"
__global__ void add(int* data, int more) {
  data[blockIdx.x * blockDim.x + threadIdx.x] += more;
}
int main() {
  need_two_gpus();
  constexpr int kCount = 128;
  struct {
    cudaStream_t stream;
    int *here, *there;
  } of[2];
  for (int gpu = 0; gpu < 2; ++gpu) {
    CHECK(cudaSetDevice(gpu));
    CHECK(cudaStreamCreate(&of[gpu].stream));
    CHECK(cudaMalloc(&of[gpu].there, kCount * sizeof(int)));
    CHECK(cudaMallocHost(&of[gpu].here, kCount * sizeof(int)));
    for (int i = 0; i < kCount; ++i) of[gpu].here[i] = i;
  }
  for (int gpu = 0; gpu < 2; ++gpu) {
    CHECK(cudaSetDevice(gpu));
    const auto& [stream, here, there] = of[gpu];
    CHECK(cudaMemcpyAsync(there, here, kCount * sizeof(int), cudaMemcpyDefault, stream));
    add<<<2, 64, 0, stream>>>(there, gpu + 1);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(here, there, kCount * sizeof(int), cudaMemcpyDefault, stream));
  }
  bool right = true;
  for (int gpu = 0; gpu < 2; ++gpu) {
    CHECK(cudaSetDevice(gpu));
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < kCount; ++i) right = right && of[gpu].here[i] == i + gpu + 1;
  }
  for (const auto& [stream, here, there] : of) {
    CHECK(cudaFree(there)), CHECK(cudaFreeHost(here)), CHECK(cudaStreamDestroy(stream));
  }
  return verdict(right);
}
