// Many streams with events that join them.
#include "sample.h"
__global__ void step(int* words, int at) {
  if (threadIdx.x == 0) words[at] = at + 1;
}
__global__ void total(const int* words, int count, int* out) {
  int sum = 0;
  for (int i = 0; i < count; ++i) sum += words[i];
  *out = sum;
}
int main() {
  constexpr int kStreams = 8;
  int *words = managed<int>(kStreams), *out = managed<int>(1);
  cudaStream_t streams[kStreams], last;
  CHECK(cudaStreamCreateWithFlags(&last, cudaStreamNonBlocking));
  for (int i = 0; i < kStreams; ++i) {
    cudaEvent_t event;
    CHECK(cudaStreamCreateWithPriority(&streams[i], cudaStreamNonBlocking, 0));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    step<<<1, 32, 0, streams[i]>>>(words, i);
    CHECK(cudaEventRecord(event, streams[i])), CHECK(cudaStreamWaitEvent(last, event, 0));
  }
  total<<<1, 1, 0, last>>>(words, kStreams, out);
  CHECK(cudaStreamSynchronize(last));
  return verdict(*out == 36);
}
