// Two kernels on two streams: one fills a ring of two slots, the other empties it and says so.
#include <cuda_runtime.h>

#include <cstdio>
#define CHECK(call)                             \
  if (cudaError_t e = (call)) {                 \
    std::printf("%s\n", cudaGetErrorString(e)); \
    return 1;                                   \
  }
constexpr int kItems = 8, kSlots = 2, kThreads = 64;

__global__ void produce(int* ring, int* filled, int* emptied) {
  for (int item = 0; item < kItems; ++item) {
    if (threadIdx.x == 0) {
      while (*(volatile int*)emptied + kSlots <= item) {
      }
      __threadfence();  // behind the credit
    }
    __syncthreads();
    ring[item % kSlots * kThreads + threadIdx.x] = item * 100 + threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();  // before the item
      atomicExch(filled, item + 1);
    }
  }
}

__global__ void consume(const int* ring, int* filled, int* emptied, int* sums) {
  int sum = 0;
  for (int item = 0; item < kItems; ++item) {
    if (threadIdx.x == 0) {
      while (*(volatile int*)filled <= item) {
      }
      __threadfence();  // behind the item
    }
    __syncthreads();
    sum += ring[item % kSlots * kThreads + threadIdx.x];
    __syncthreads();  // all have read
    if (threadIdx.x == 0) {
      __threadfence();
      atomicExch(emptied, item + 1);  // the credit
    }
  }
  sums[threadIdx.x] = sum;
}

int main() {
  int *ring, *words, *sums, host[kThreads];
  CHECK(cudaMalloc(&ring, sizeof(int) * kSlots * kThreads));
  CHECK(cudaMalloc(&words, 2 * sizeof(int)));
  CHECK(cudaMalloc(&sums, sizeof host));
  CHECK(cudaMemset(words, 0, 2 * sizeof(int)));
  CHECK(cudaDeviceSynchronize());
  cudaStream_t one, two;
  CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
  produce<<<1, kThreads, 0, one>>>(ring, words, words + 1);
  consume<<<1, kThreads, 0, two>>>(ring, words, words + 1, sums);
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(host, sums, sizeof host, cudaMemcpyDeviceToHost));
  for (int at = 0; at < kThreads; ++at) {
    if (host[at] != kItems * at + 100 * kItems * (kItems - 1) / 2) return 2;
  }
  std::puts("right");
  return 0;
}
