// A kernel waits for what the host stores after the launch; a graph has memory of its own.
#include "check.h"

constexpr int kCount = 64;

struct Box {
  int go;
  int values[kCount];
};

__global__ void take(Box* box, int* out) {
  if (threadIdx.x == 0) {
    while (*(volatile int*)&box->go == 0) {
    }
    __threadfence_system();
  }
  __syncthreads();
  out[threadIdx.x] = box->values[threadIdx.x];
}

__global__ void add(int* to, const int* from) {
  to[threadIdx.x] = from[threadIdx.x] + 1;
}

static void count(void* calls) {
  ++*static_cast<int*>(calls);
}

static int handed_over(cudaStream_t stream, int* out) {
  Box* box;
  int calls = 0;
  CHECK(cudaHostAlloc(&box, sizeof *box, cudaHostAllocMapped));
  box->go = 0;
  take<<<1, kCount, 0, stream>>>(box, out);
  for (int i = 0; i < kCount; ++i) box->values[i] = i;  // values
  __atomic_store_n(&box->go, 1, __ATOMIC_RELEASE);
  CHECK(cudaLaunchHostFunc(stream, count, &calls));
  CHECK(cudaStreamSynchronize(stream));
  int last = box->values[kCount - 1];
  CHECK(cudaFreeHost(box));
  return calls == 1 && last == kCount - 1 ? 0 : 1;
}

static int captured(cudaStream_t stream, cudaStream_t other, int* out) {
  int *own, *twin;
  cudaEvent_t made, used;
  CHECK(cudaEventCreate(&made));
  CHECK(cudaEventCreate(&used));
  CHECK(cudaMalloc(&twin, kCount * sizeof(int)));
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(cudaMallocAsync(&own, kCount * sizeof(int), stream));
  add<<<1, kCount, 0, stream>>>(own, out);
  CHECK(cudaEventRecord(made, stream));
  CHECK(cudaStreamWaitEvent(other, made, 0));
  add<<<1, kCount, 0, other>>>(twin, own);
  CHECK(cudaEventRecord(used, other));
  add<<<1, kCount, 0, stream>>>(out, own);
  CHECK(cudaStreamWaitEvent(stream, used, 0));
  CHECK(cudaFreeAsync(own, stream));
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  for (int turn = 0; turn < 3; ++turn) CHECK(cudaGraphLaunch(executable, stream));
  CHECK(cudaStreamSynchronize(stream));
  return 0;
}

int main() {
  cudaStream_t stream, other;
  int* out;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  CHECK(cudaMalloc(&out, kCount * sizeof(int)));
  if (handed_over(stream, out) != 0 || captured(stream, other, out) != 0) return 1;
  int here[kCount];
  CHECK(cudaMemcpy(here, out, sizeof here, cudaMemcpyDeviceToHost));
  return here[0] == 6 && here[kCount - 1] == kCount + 5 ? 0 : 1;
}
