// A kernel of GPU 0 hands words to one of GPU 1 that waits for its flag, in two rounds.
#include "check.h"

constexpr int kWords = 64;

__global__ void push(int* inbox, unsigned* flag, unsigned round) {
  inbox[threadIdx.x] = static_cast<int>(threadIdx.x + round);
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence_system();
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(round) : "memory");
  }
}

__global__ void take(const int* inbox, const unsigned* flag, int* out, unsigned round) {
  if (threadIdx.x == 0) {
    for (unsigned seen = 0; seen < round;) {
      asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
    }
  }
  __syncthreads();
  out[threadIdx.x] = inbox[threadIdx.x];
}

int main() {
  int *inbox, *out, *sent, got[kWords];
  unsigned* flag;
  cudaStream_t first, second;
  cudaEvent_t taken;
  CHECK(cudaSetDevice(0));
  CHECK(cudaDeviceEnablePeerAccess(1, 0));
  CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  CHECK(cudaMalloc(&sent, sizeof got));
  CHECK(cudaSetDevice(1));
  CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&taken, cudaEventDisableTiming));
  CHECK(cudaMalloc(&inbox, sizeof got));
  CHECK(cudaMalloc(&out, sizeof got));
  CHECK(cudaMalloc(&flag, sizeof *flag));
  CHECK(cudaMemset(flag, 0, sizeof *flag));
  CHECK(cudaDeviceSynchronize());
  for (unsigned round = 1; round <= 2; ++round) {
    CHECK(cudaSetDevice(0));
    push<<<1, kWords, 0, first>>>(inbox, flag, round);
    CHECK(cudaSetDevice(1));
    take<<<1, kWords, 0, second>>>(inbox, flag, out, round);
    CHECK(cudaEventRecord(taken, second));
    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamWaitEvent(first, taken, 0));
    CHECK(cudaMemcpyPeerAsync(sent, 0, out, 1, sizeof got, first));
    CHECK(cudaMemcpyAsync(got, sent, sizeof got, cudaMemcpyDeviceToHost, first));
    CHECK(cudaStreamSynchronize(first));
    for (int i = 0; i < kWords; ++i) {
      if (got[i] != i + static_cast<int>(round)) return 1;
    }
  }
  return 0;
}
