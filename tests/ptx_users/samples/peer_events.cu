// Two GPUs: one fills a buffer, the other sums it up; events of each make the other wait.
#include "sample.h"
__global__ void fill(int* data, int value) {
  data[threadIdx.x] = value;
}
__global__ void sum(const int* data, int* total) {
  atomicAdd(total, data[threadIdx.x]);
}
int main() {
  need_two_gpus();
  cudaStream_t first, second;
  cudaEvent_t filled, used;
  int *data, *total, here = 0;
  CHECK(cudaSetDevice(0));
  CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&filled, cudaEventDisableTiming));
  CHECK(cudaMalloc(&data, 128));
  CHECK(cudaSetDevice(1));
  CHECK(cudaDeviceEnablePeerAccess(0, 0));
  CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&used, cudaEventDisableTiming));
  CHECK(cudaMalloc(&total, 4));
  CHECK(cudaMemsetAsync(total, 0, 4, second));
  for (int turn = 1; turn <= 3; ++turn) {
    CHECK(cudaSetDevice(0));
    if (turn > 1) CHECK(cudaStreamWaitEvent(first, used, 0));
    fill<<<1, 32, 0, first>>>(data, turn);
    CHECK(cudaEventRecord(filled, first));
    CHECK(cudaSetDevice(1));
    CHECK(cudaStreamWaitEvent(second, filled, 0));
    sum<<<1, 32, 0, second>>>(data, total);
    CHECK(cudaEventRecord(used, second));
  }
  CHECK(cudaEventSynchronize(used));
  CHECK(cudaMemcpy(&here, total, 4, cudaMemcpyDefault));
  return verdict(here == 6 * 32);
}
