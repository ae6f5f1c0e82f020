// Streams that hand data over by words in memory, and one that waits until a launch has begun.
#include <cuda.h>
#include <cuda_runtime.h>

#include "check.h"

constexpr int kCount = 64;

__global__ void fill(int* values, int by) {
  values[threadIdx.x] = by * static_cast<int>(threadIdx.x);
}
__global__ void add(int* sums, const int* values) {
  sums[threadIdx.x] += values[threadIdx.x];
}

int main() {
  int *values, *sums, *others, found[kCount];
  unsigned* words;  // filled, added
  CHECK(cudaMalloc(&values, sizeof found));
  CHECK(cudaMalloc(&sums, sizeof found));
  CHECK(cudaMalloc(&others, sizeof found));
  CHECK(cudaMalloc(&words, 2 * sizeof *words));
  CHECK(cudaMemset(sums, 0, sizeof found));
  CHECK(cudaMemset(words, 0, 2 * sizeof *words));
  CHECK(cudaDeviceSynchronize());
  cudaStream_t first, second;
  CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  const auto filled = reinterpret_cast<CUdeviceptr>(words), added = filled + sizeof *words;
  bool ok = true;
  for (unsigned round = 1; round <= 3; ++round) {
    ok = ok && !cuStreamWaitValue32(first, added, round - 1, CU_STREAM_WAIT_VALUE_GEQ);
    fill<<<1, kCount, 0, first>>>(values, static_cast<int>(round));
    ok = ok && !cuStreamWriteValue32(first, filled, round, CU_STREAM_WRITE_VALUE_DEFAULT);
    ok = ok && !cuStreamWaitValue32(second, filled, round, CU_STREAM_WAIT_VALUE_GEQ);
    add<<<1, kCount, 0, second>>>(sums, values);
    ok = ok && !cuStreamWriteValue32(second, added, round, CU_STREAM_WRITE_VALUE_DEFAULT);
  }
  CHECK(cudaStreamSynchronize(second));

  // Again, from 0: what was written before says nothing of it.
  CHECK(cudaMemset(words, 0, 2 * sizeof *words));
  CHECK(cudaDeviceSynchronize());
  fill<<<1, kCount, 0, first>>>(values, 0);
  ok = ok && !cuStreamWriteValue32(first, filled, 1, CU_STREAM_WRITE_VALUE_DEFAULT);
  ok = ok && !cuStreamWaitValue32(second, filled, 1, CU_STREAM_WAIT_VALUE_GEQ);
  add<<<1, kCount, 0, second>>>(sums, values);
  CHECK(cudaStreamSynchronize(second));

  cudaEvent_t begun, ended;
  CHECK(cudaEventCreateWithFlags(&begun, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&ended, cudaEventDisableTiming));
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeLaunchCompletionEvent;
  attribute.val.launchCompletionEvent.event = begun;
  cudaLaunchConfig_t config = {1, kCount, 0, first, &attribute, 1};
  CHECK(cudaLaunchKernelEx(&config, fill, values, 4));
  CHECK(cudaEventRecord(ended, first));
  CHECK(cudaStreamWaitEvent(second, begun, 0));
  fill<<<1, kCount, 0, second>>>(others, 5);  // beside it
  CHECK(cudaStreamWaitEvent(second, ended, 0));
  add<<<1, kCount, 0, second>>>(sums, values);
  add<<<1, kCount, 0, second>>>(sums, others);
  CHECK(cudaMemcpyAsync(found, sums, sizeof found, cudaMemcpyDeviceToHost, second));
  CHECK(cudaStreamSynchronize(second));
  for (int i = 0; i < kCount; ++i) {
    if (found[i] != (1 + 2 + 3 + 4 + 5) * i) return 2;
  }
  return !ok;
}
