// A graph of two streams, captured: each adds up what both have filled, so that either has to wait
// for the other.
#include <cuda_runtime.h>

constexpr int kWords = 64;

__global__ void fill(int* out, int value) {
  out[threadIdx.x] = value;
}
__global__ void sum(int* out, const int* left, const int* right) {
  out[threadIdx.x] = left[threadIdx.x] + right[threadIdx.x];
}

int main() {
  int* words;
  if (cudaMallocManaged(&words, 4 * kWords * sizeof(int)) != cudaSuccess) return 2;
  int* const filled[2] = {words, words + kWords};
  cudaStream_t streams[2];
  cudaEvent_t begin, done[2];
  cudaEventCreate(&begin);
  for (int i = 0; i < 2; ++i) {
    cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking);
    cudaEventCreate(&done[i]);
  }
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal);
  cudaEventRecord(begin, streams[0]);
  cudaStreamWaitEvent(streams[1], begin);
  for (int i = 0; i < 2; ++i) {
    fill<<<1, kWords, 0, streams[i]>>>(filled[i], i + 1);
    cudaEventRecord(done[i], streams[i]);
  }
  cudaStreamWaitEvent(streams[0], done[1]);
  cudaStreamWaitEvent(streams[1], done[0]);
  for (int i = 0; i < 2; ++i) {
    sum<<<1, kWords, 0, streams[i]>>>(words + (2 + i) * kWords, filled[0], filled[1]);
  }
  cudaEventRecord(done[1], streams[1]);
  cudaStreamWaitEvent(streams[0], done[1]);
  cudaStreamEndCapture(streams[0], &graph);
  if (cudaGraphInstantiate(&executable, graph, 0) != cudaSuccess) return 2;
  for (int turn = 0; turn < 2; ++turn) {
    cudaMemset(words, 0, 4 * kWords * sizeof(int));
    cudaDeviceSynchronize();
    cudaGraphLaunch(executable, streams[0]);
    cudaStreamSynchronize(streams[0]);
    for (int i = 2 * kWords; i < 4 * kWords; ++i) {
      if (words[i] != 3) return 1;
    }
  }
  return 0;
}
