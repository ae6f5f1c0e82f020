// A graph allocates and frees memory.
#include "sample.h"
__global__ void fill(int* data) {
  data[threadIdx.x] = threadIdx.x;
}
__global__ void take(const int* data, int* out) {
  out[threadIdx.x] = data[threadIdx.x] + 1;
}
int main() {
  int* out = managed<int>(32);
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  int* data;
  CHECK(cudaMallocAsync(&data, 128, stream));
  fill<<<1, 32, 0, stream>>>(data);
  take<<<1, 32, 0, stream>>>(data, out);
  CHECK(cudaFreeAsync(data, stream));
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable;
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 2; ++i) CHECK(cudaGraphLaunch(executable, stream));
  CHECK(cudaStreamSynchronize(stream));
  return verdict(out[31] == 32);
}
