// Two streams, an event between them, copies that the host has to wait for.
#include <cstdio>

namespace {

constexpr int kCount = 1000;

__global__ void fill(int* to, int value) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < kCount) to[at] = value + at;
}

__global__ void add(const int* a, const int* b, int* sum) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < kCount) sum[at] = a[at] + b[at];
}

}  // namespace

int main() {
  constexpr size_t kBytes = kCount * sizeof(int);
  int *a, *b, *sum, *found;
  cudaMalloc(&a, kBytes);
  cudaMalloc(&b, kBytes);
  cudaMalloc(&sum, kBytes);
  cudaMallocHost(&found, kBytes);
  cudaStream_t first, second;
  cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
  cudaEvent_t filled;
  cudaEventCreateWithFlags(&filled, cudaEventDisableTiming);
  fill<<<8, 128, 0, first>>>(a, 1);
  cudaEventRecord(filled, first);
  cudaStreamWaitEvent(second, filled, 0);
  fill<<<8, 128, 0, second>>>(b, 2);
  add<<<8, 128, 0, second>>>(a, b, sum);
  cudaMemcpyAsync(found, sum, kBytes, cudaMemcpyDeviceToHost, second);
  cudaStreamSynchronize(second);
  for (int at = 0; at < kCount; ++at) {
    if (found[at] != 3 + 2 * at) {
      std::printf("wrong at %d\n", at);
      return 1;
    }
  }
  cudaFree(a);
  cudaFree(b);
  cudaFree(sum);
  cudaFreeHost(found);
  return 0;
}
