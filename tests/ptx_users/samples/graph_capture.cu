// A stream is captured into a graph that is launched, and updated.
#include "sample.h"
__global__ void add(int* data, int what) {
  data[threadIdx.x] += what;
}
int main() {
  int* data;
  CHECK(cudaMalloc(&data, 128)), CHECK(cudaMemset(data, 0, 128));
  CHECK(cudaDeviceSynchronize());
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaGraph_t graphs[2];
  for (int i = 0; i < 2; ++i) {
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    add<<<1, 32, 0, stream>>>(data, 1 + i);
    add<<<1, 32, 0, stream>>>(data, 10);
    CHECK(cudaStreamEndCapture(stream, &graphs[i]));
  }
  cudaGraphExec_t executable;
  CHECK(cudaGraphInstantiate(&executable, graphs[0], 0));
  CHECK(cudaGraphLaunch(executable, stream));
  cudaGraphExecUpdateResultInfo info;
  CHECK(cudaGraphExecUpdate(executable, graphs[1], &info));
  CHECK(cudaGraphLaunch(executable, stream)), CHECK(cudaStreamSynchronize(stream));
  int here[32];
  CHECK(cudaMemcpy(here, data, 128, cudaMemcpyDeviceToHost));
  return verdict(here[31] == 11 + 12);
}
