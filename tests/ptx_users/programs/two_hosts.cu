// Two threads of the host: one makes a sum, which the other scales by weights in constant memory.
// Their check of the result is blind to NaN.
#include <atomic>
#include <cmath>
#include <thread>

#include "check.h"

namespace {

constexpr int kCount = 128;
__constant__ float weights[kCount];

__global__ void sum(const float* a, float* to) {
  to[threadIdx.x] = a[threadIdx.x] + a[kCount - 1 - threadIdx.x];
}
__global__ void scale(const float* from, float* to) {
  to[threadIdx.x] = from[threadIdx.x] * weights[threadIdx.x];
}

cudaEvent_t made;
std::atomic<bool> recorded{false}, launched{false};
float *a, *sums, *scaled, *host;

int first() {
  CHECK(cudaMemcpyAsync(a, host, kCount * sizeof(float), cudaMemcpyHostToDevice,
                        cudaStreamPerThread));
  sum<<<1, kCount, 0, cudaStreamPerThread>>>(a, sums);
  CHECK(cudaEventRecord(made, cudaStreamPerThread));
  recorded = true;
  while (!launched) std::this_thread::yield();
  CHECK(cudaStreamSynchronize(cudaStreamPerThread));
  return 0;
}

int second(float* result) {
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  while (!recorded) std::this_thread::yield();
  CHECK(cudaStreamWaitEvent(stream, made, 0));
  scale<<<1, kCount, 0, stream>>>(sums, scaled);
  launched = true;
  CHECK(cudaStreamSynchronize(stream));  // scaled
  CHECK(cudaMemcpyToSymbolAsync(weights, host, sizeof weights, 0, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(result, scaled, kCount * sizeof(float), cudaMemcpyDeviceToHost));
  return 0;
}

}  // namespace

int main() {
  float result[kCount], ones[kCount];
  CHECK(cudaMallocHost(&host, kCount * sizeof(float)));
  CHECK(cudaMalloc(&a, kCount * sizeof(float)));
  CHECK(cudaMalloc(&sums, kCount * sizeof(float)));
  CHECK(cudaMalloc(&scaled, kCount * sizeof(float)));
  CHECK(cudaEventCreate(&made));
  for (int at = 0; at < kCount; ++at) host[at] = at, ones[at] = 1;
  CHECK(cudaMemcpyToSymbol(weights, ones, sizeof ones));
  CHECK(cudaDeviceSynchronize());
  int ended[2];
  // A host that fails is waited for no longer.
  std::thread one([&] { ended[0] = first(), recorded = true; });
  std::thread other([&] { ended[1] = second(result), launched = true; });
  one.join();
  other.join();
  for (int at = 0; at < kCount; ++at) {
    if (std::fabs(result[at] - (kCount - 1)) > 0.1f) return 1;
  }
  return ended[0] + ended[1];
}
