// Functions of the host on streams: one fills pinned memory ahead of its copy, one reads what a
// copy has brought; and page-locked memory of the host's that is used again behind its copy.
#include <cuda_runtime.h>

#include <vector>

#include "check.h"

namespace {

constexpr int kCount = 256;

struct Job {
  int* data;
  int start, sum;
};

void fill(void* given) {
  const Job& job = *static_cast<Job*>(given);
  for (int at = 0; at < kCount; ++at) job.data[at] = job.start + at;
}

void CUDART_CB add(cudaStream_t, cudaError_t, void* given) {
  Job& job = *static_cast<Job*>(given);
  job.sum = 0;
  for (int at = 0; at < kCount; ++at) job.sum += job.data[at];
}

__global__ void twice(int* data) {
  data[threadIdx.x] *= 2;
}

}  // namespace

int main() {
  int *in, *out, *device;
  CHECK(cudaMallocHost(&in, kCount * sizeof(int)));
  CHECK(cudaMallocHost(&out, kCount * sizeof(int)));
  CHECK(cudaMalloc(&device, kCount * sizeof(int)));
  std::vector<int> mine(kCount + 1, 5);
  CHECK(cudaHostRegister(mine.data(), kCount * sizeof(int), cudaHostRegisterDefault));
  cudaStream_t first, second;
  CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  cudaEvent_t done;
  CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  int wrong = 0;

  Job made{in, 3, 0}, added{out, 0, 0};
  CHECK(cudaLaunchHostFunc(first, fill, &made));
  CHECK(cudaMemcpyAsync(device, in, kCount * sizeof(int), cudaMemcpyHostToDevice, first));
  twice<<<1, kCount, 0, first>>>(device);
  CHECK(cudaMemcpyAsync(out, device, kCount * sizeof(int), cudaMemcpyDeviceToHost, first));
  CHECK(cudaEventRecord(done, first));
  CHECK(cudaStreamWaitEvent(second, done, 0));  // added
  CHECK(cudaStreamAddCallback(second, add, &added, 0));
  CHECK(cudaStreamSynchronize(second));
  CHECK(cudaStreamSynchronize(first));
  wrong += added.sum != (2 * 3 + kCount - 1) * kCount;

  CHECK(cudaMemcpyAsync(device, mine.data(), kCount * sizeof(int), cudaMemcpyHostToDevice, first));
  CHECK(cudaStreamSynchronize(first));  // mine
  for (int& each : mine) each = 0;
  twice<<<1, kCount, 0, first>>>(device);
  CHECK(cudaMemcpyAsync(out, device, kCount * sizeof(int), cudaMemcpyDeviceToHost, first));
  CHECK(cudaStreamSynchronize(first));
  for (int at = 0; at < kCount; ++at) wrong += out[at] != 10;
  CHECK(cudaHostUnregister(mine.data()));
  return wrong != 0;
}
