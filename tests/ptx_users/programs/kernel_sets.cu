// A stream waits for a word that a kernel of another one sets.
#include <cuda.h>
#include <cuda_runtime.h>

#include "check.h"

constexpr int kCount = 64;

// The last CTA says that all is there.
__global__ void fill(int* values, unsigned* arrived, unsigned* word) {
  values[blockIdx.x * blockDim.x + threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence_system();  // before
  if (atomicAdd(arrived, 1) + 1 != gridDim.x) return;
  __threadfence_system();
  *reinterpret_cast<volatile unsigned*>(word) = 1;
}
__global__ void add(int* sums, const int* values) {
  sums[threadIdx.x] = values[threadIdx.x] + values[kCount + threadIdx.x];
}

int main() {
  int *values, *sums, found[kCount];
  unsigned* words;
  CHECK(cudaMalloc(&values, 2 * sizeof found));
  CHECK(cudaMalloc(&sums, sizeof found));
  CHECK(cudaMalloc(&words, 2 * sizeof *words));
  CHECK(cudaMemset(words, 0, 2 * sizeof *words));
  CHECK(cudaDeviceSynchronize());
  cudaStream_t first, second;
  CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  fill<<<2, kCount, 0, first>>>(values, words, words + 1);
  CHECK(cudaGetLastError());
  const auto word = reinterpret_cast<CUdeviceptr>(words + 1);
  if (cuStreamWaitValue32(second, word, 1, CU_STREAM_WAIT_VALUE_GEQ) != CUDA_SUCCESS) return 2;
  add<<<1, kCount, 0, second>>>(sums, values);
  CHECK(cudaMemcpyAsync(found, sums, sizeof found, cudaMemcpyDeviceToHost, second));
  CHECK(cudaStreamSynchronize(second));
  for (int at = 0; at < kCount; ++at) {
    if (found[at] != 2 * at) return 1;
  }
  CHECK(cudaStreamSynchronize(first));
  return 0;
}
