// What launches leave in memory for the next one of their kernel: a queue that is reset before
// each, a counter that wraps, and flags by epochs. Right as it stands.
#include <cuda_runtime.h>

#include "check.h"

namespace {

constexpr int kItems = 24, kBlocks = 4;

__global__ void queue(int* next, int* out) {
  __shared__ int item;
  for (;;) {
    if (threadIdx.x == 0) item = atomicAdd(next, 1);
    __syncthreads();
    if (item >= kItems) return;
    if (threadIdx.x == 0) out[item] += item;
    __syncthreads();
  }
}

__device__ unsigned arrived;

__global__ void last_block(int* parts, int* out) {
  parts[blockIdx.x] = blockIdx.x + 1;
  __threadfence();
  if (atomicInc(&arrived, kBlocks - 1) != kBlocks - 1) return;
  __threadfence();
  int sum = 0;
  for (int each = 0; each < kBlocks; ++each) sum += static_cast<volatile int*>(parts)[each];
  *out += sum;
}

__global__ void chain(int* flags, int* carried, int epoch, int carry) {
  if (blockIdx.x > 0) {
    int seen;
    do {
      asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                   : "=r"(seen)
                   : "l"(flags + blockIdx.x - 1)
                   : "memory");
    } while (seen != epoch);
    carry += carried[blockIdx.x - 1];
  }
  carried[blockIdx.x] = carry;
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(flags + blockIdx.x), "r"(epoch)
               : "memory");
}

}  // namespace

int main() {
  int *next, *out, *parts, *sum, *flags, *carried;
  CHECK(cudaMalloc(&next, sizeof(int)));
  CHECK(cudaMalloc(&out, kItems * sizeof(int)));
  CHECK(cudaMalloc(&parts, kBlocks * sizeof(int)));
  CHECK(cudaMalloc(&sum, sizeof(int)));
  CHECK(cudaMalloc(&flags, kBlocks * sizeof(int)));
  CHECK(cudaMalloc(&carried, kBlocks * sizeof(int)));
  CHECK(cudaMemset(next, 0, sizeof(int)));
  CHECK(cudaMemset(out, 0, kItems * sizeof(int)));
  CHECK(cudaMemset(sum, 0, sizeof(int)));
  CHECK(cudaMemset(flags, 0, kBlocks * sizeof(int)));
  int wrong = 0;
  for (int turn = 1; turn <= 2; ++turn) {
    CHECK(cudaMemset(next, 0, sizeof(int)));  // queue
    queue<<<kBlocks, 32>>>(next, out);
    last_block<<<kBlocks, 1>>>(parts, sum);
    chain<<<kBlocks, 1>>>(flags, carried, turn, turn);
    int host[kItems], total, carry[kBlocks];
    CHECK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&total, sum, sizeof total, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(carry, carried, sizeof carry, cudaMemcpyDeviceToHost));
    for (int item = 0; item < kItems; ++item) wrong += host[item] != turn * item;
    wrong += total != turn * kBlocks * (kBlocks + 1) / 2;
    for (int block = 0; block < kBlocks; ++block) wrong += carry[block] != (block + 1) * turn;
  }
  return wrong != 0;
}
