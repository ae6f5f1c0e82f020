// Two launches on two streams add partial sums by a ticket counter; they must not share it.
#include <cuda_runtime.h>

#include <cstdio>
#define CHECK(call)                             \
  if (cudaError_t e = (call)) {                 \
    std::printf("%s\n", cudaGetErrorString(e)); \
    return 1;                                   \
  }
constexpr int kCtas = 4;

__global__ void total(const int* in, int* sum, unsigned* tickets, int* out) {
  if (threadIdx.x == 0) {
    atomicAdd(sum, in[blockIdx.x]);
    __threadfence();
    if (atomicInc(tickets, gridDim.x - 1) == gridDim.x - 1) {  // the last one; it is 0 again
      __threadfence();
      *out = atomicExch(sum, 0);
    }
  }
}

int main() {
  int *in, *sum, *out, host[2 * kCtas], got[2];
  unsigned* tickets;
  for (int at = 0; at < 2 * kCtas; ++at) host[at] = at + 1;
  CHECK(cudaMalloc(&in, sizeof host));
  CHECK(cudaMalloc(&sum, 2 * sizeof(int)));
  CHECK(cudaMalloc(&tickets, 2 * sizeof(int)));
  CHECK(cudaMalloc(&out, sizeof got));
  CHECK(cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice));
  CHECK(cudaMemset(sum, 0, 2 * sizeof(int)));
  CHECK(cudaMemset(tickets, 0, 2 * sizeof(int)));
  CHECK(cudaDeviceSynchronize());
  cudaStream_t streams[2];
  for (int at = 0; at < 2; ++at) {
    CHECK(cudaStreamCreateWithFlags(&streams[at], cudaStreamNonBlocking));
    const int own = at;
    total<<<kCtas, 32, 0, streams[at]>>>(in + at * kCtas, sum + own, tickets + own, out + at);
  }
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
  std::printf("%d %d\n", got[0], got[1]);
  return got[0] == 10 && got[1] == 26 ? 0 : 2;
}
