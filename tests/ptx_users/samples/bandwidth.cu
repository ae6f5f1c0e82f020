// Copies of every direction, pitched ones too, timed by events.
#include <cstring>

#include "sample.h"
int main() {
  char *host, *a, *b;
  size_t pitch;
  CHECK(cudaHostAlloc(&host, 4096, cudaHostAllocWriteCombined));
  CHECK(cudaMallocPitch(&a, &pitch, 48, 16)), CHECK(cudaMalloc(&b, 48 * 16));
  for (int i = 0; i < 48 * 16; ++i) host[i] = static_cast<char>(i);
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin)), CHECK(cudaEventCreate(&end)), CHECK(cudaEventRecord(begin));
  CHECK(cudaMemcpy2D(a, pitch, host, 48, 48, 16, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy2D(b, 48, a, pitch, 48, 16, cudaMemcpyDeviceToDevice));
  CHECK(cudaMemcpy(host + 2048, b, 48 * 16, cudaMemcpyDeviceToHost));
  CHECK(cudaEventRecord(end)), CHECK(cudaEventSynchronize(end));
  float ms = -1;
  CHECK(cudaEventElapsedTime(&ms, begin, end));
  return verdict(ms >= 0 && std::memcmp(host, host + 2048, 48 * 16) == 0);
}
