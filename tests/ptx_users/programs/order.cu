// Work on streams, the host and memory in order with each other. Nothing is compared: what is in no
// order has to be found by the order alone.
#include <cstdio>

#include "check.h"

namespace {

constexpr int kCount = 512, kThreads = 128;
constexpr size_t kBytes = kCount * sizeof(float);

__global__ void fill(float* to, float value) {
  to[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
__global__ void add(const float* a, const float* b, float* sum) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  sum[at] = a[at] + b[at];
}
__global__ void scale(float* of) {
  of[blockIdx.x * blockDim.x + threadIdx.x] *= 2;
}
__global__ void count(int* words) {
  atomicAdd(words, 1);
}

struct Streams {
  cudaStream_t first, second;
  cudaEvent_t done, used;
  explicit Streams(unsigned flags = cudaStreamNonBlocking) {
    cudaStreamCreateWithFlags(&first, flags);
    cudaStreamCreateWithFlags(&second, flags);
    cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&used, cudaEventDisableTiming);
  }
  ~Streams() {
    cudaDeviceSynchronize();
    cudaEventDestroy(done);
    cudaEventDestroy(used);
    cudaStreamDestroy(first);
    cudaStreamDestroy(second);
  }
};

float* device() {
  float* made = nullptr;
  cudaMalloc(&made, kBytes);
  cudaMemset(made, 0, kBytes);
  cudaDeviceSynchronize();
  return made;
}

// A kernel on one stream reads what one on another writes.
void event_between_kernels() {
  Streams s;
  float *a = device(), *b = device();
  fill<<<4, kThreads, 0, s.first>>>(a, 1);
  cudaEventRecord(s.done, s.first);
  cudaStreamWaitEvent(s.second, s.done, 0);  // between kernels
  add<<<4, kThreads, 0, s.second>>>(a, a, b);
}

// The halves of one buffer, and one word by atomics: no order is needed.
void nothing_in_common() {
  Streams s;
  float* a = device();
  int* word;
  cudaMalloc(&word, sizeof(int));
  cudaMemset(word, 0, sizeof(int));
  cudaDeviceSynchronize();
  fill<<<2, kThreads, 0, s.first>>>(a, 1);
  fill<<<2, kThreads, 0, s.second>>>(a + 2 * kThreads, 2);
  count<<<2, kThreads, 0, s.first>>>(word);
  count<<<2, kThreads, 0, s.second>>>(word);
}

// Two kernels only read; the third, which writes, comes after both.
void two_readers() {
  Streams s;
  float *a = device(), *b = device(), *c = device();
  add<<<4, kThreads, 0, s.first>>>(a, a, b);
  add<<<4, kThreads, 0, s.second>>>(a, a, c);
  cudaEventRecord(s.done, s.first);
  cudaStreamWaitEvent(s.second, s.done, 0);  // two readers
  fill<<<4, kThreads, 0, s.second>>>(a, 3);
}

// The host reads pinned memory that a copy writes.
void pinned_result() {
  Streams s;
  float *a = device(), *host;
  cudaMallocHost(&host, kBytes);
  fill<<<4, kThreads, 0, s.first>>>(a, 1);
  cudaMemcpyAsync(host, a, kBytes, cudaMemcpyDeviceToHost, s.first);
  cudaEventRecord(s.done, s.first);
  cudaEventSynchronize(s.done);  // pinned result
  if (host[7] > 2) std::puts("more than two");
  cudaDeviceSynchronize();
  cudaFreeHost(host);
}

// The host fills a staging buffer again.
void pinned_staging() {
  Streams s;
  float *a = device(), *b = device(), *host;
  cudaMallocHost(&host, kBytes);
  for (int i = 0; i < kCount; ++i) host[i] = 1;
  cudaMemcpyAsync(a, host, kBytes, cudaMemcpyHostToDevice, s.first);
  cudaEventRecord(s.done, s.first);
  cudaEventSynchronize(s.done);  // pinned staging
  for (int i = 0; i < kCount; ++i) host[i] = 2;
  cudaMemcpyAsync(b, host, kBytes, cudaMemcpyHostToDevice, s.first);
  cudaDeviceSynchronize();
  cudaFreeHost(host);
}

// A staging buffer of the GPU: the next copy has to wait for the kernel that reads the last one's.
void device_staging() {
  Streams s;
  float *staged = device(), *out = device();
  float* host;
  cudaMallocHost(&host, 2 * kBytes);
  for (int i = 0; i < 2 * kCount; ++i) host[i] = 1;
  for (int turn = 0; turn < 2; ++turn) {
    if (turn > 0) cudaStreamWaitEvent(s.first, s.used, 0);  // device staging
    cudaMemcpyAsync(staged, host + turn * kCount, kBytes, cudaMemcpyHostToDevice, s.first);
    cudaEventRecord(s.done, s.first);
    cudaStreamWaitEvent(s.second, s.done, 0);
    add<<<4, kThreads, 0, s.second>>>(staged, out, out);
    cudaEventRecord(s.used, s.second);
  }
  cudaDeviceSynchronize();
  cudaFreeHost(host);
}

// A stream frees what another uses.
void freed_by_a_stream() {
  Streams s;
  float *a, *out = device();
  cudaMallocAsync(&a, kBytes, s.first);
  fill<<<4, kThreads, 0, s.first>>>(a, 1);
  cudaEventRecord(s.done, s.first);
  cudaStreamWaitEvent(s.second, s.done, 0);  // allocated
  add<<<4, kThreads, 0, s.second>>>(a, a, out);
  cudaEventRecord(s.used, s.second);
  cudaStreamWaitEvent(s.first, s.used, 0);  // freed
  cudaFreeAsync(a, s.first);
}

// The host frees a pool's memory: it waits for nothing.
void freed_by_the_host() {
  Streams s;
  float* a;
  cudaMallocAsync(&a, kBytes, s.first);
  fill<<<4, kThreads, 0, s.first>>>(a, 1);
  cudaStreamSynchronize(s.first);  // pooled
  cudaFree(a);
}

// Memory set on one stream, added to on another.
void memset_on_a_stream() {
  Streams s;
  float* a = device();
  cudaMemsetAsync(a, 0, kBytes, s.first);
  cudaStreamSynchronize(s.first);  // memset
  scale<<<4, kThreads, 0, s.second>>>(a);
}

// The default stream waits for blocking streams, and they for it.
void default_stream() {
  Streams s(cudaStreamDefault);
  float *a = device(), *b = device();
  fill<<<4, kThreads, 0, s.first>>>(a, 1);
  scale<<<4, kThreads>>>(a);
  add<<<4, kThreads, 0, s.second>>>(a, a, b);
}

// The host reads managed memory that a kernel writes.
void managed_result() {
  float* a;
  cudaMallocManaged(&a, kBytes);
  cudaMemset(a, 0, kBytes);  // the host waits for it
  a[0] = 1;
  fill<<<4, kThreads>>>(a, 1);
  cudaDeviceSynchronize();  // managed
  if (a[kCount - 1] > 2) std::puts("more than two");
  cudaDeviceSynchronize();
  cudaFree(a);
}

// A copy within the device does not make the host wait: a stream that waits for nothing does not
// come after it.
void copy_within_the_device() {
  Streams s;
  float *a = device(), *b = device();
  cudaMemcpy(b, a, kBytes, cudaMemcpyDeviceToDevice);
  cudaDeviceSynchronize();  // within the device
  scale<<<4, kThreads, 0, s.first>>>(b);
}

// A graph of two branches, which meet again.
void graph_of_two_branches() {
  Streams s;
  float *a = device(), *b = device();
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  cudaStreamBeginCapture(s.first, cudaStreamCaptureModeGlobal);
  cudaEventRecord(s.done, s.first);
  cudaStreamWaitEvent(s.second, s.done, 0);
  fill<<<4, kThreads, 0, s.first>>>(a, 1);
  fill<<<4, kThreads, 0, s.second>>>(b, 2);
  cudaEventRecord(s.used, s.second);
  cudaStreamWaitEvent(s.first, s.used, 0);  // branches meet
  add<<<4, kThreads, 0, s.first>>>(a, b, b);
  // add ends
  cudaStreamEndCapture(s.first, &graph);
  cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphLaunch(executable, s.first);
  cudaGraphLaunch(executable, s.second);
  cudaDeviceSynchronize();
}

}  // namespace

// The host fills what it uploads again once the kernel has read the upload.
void ring() {
  Streams s;
  float *staged = device(), *out = device(), *host;
  cudaMallocHost(&host, kBytes);
  for (int turn = 0; turn < 2; ++turn) {
    if (turn > 0) cudaEventSynchronize(s.used);
    for (int i = 0; i < kCount; ++i) host[i] = turn;
    cudaMemcpyAsync(staged, host, kBytes, cudaMemcpyHostToDevice, s.first);
    cudaEventRecord(s.done, s.first);
    cudaStreamWaitEvent(s.second, s.done, 0);  // ring
    scale<<<4, kThreads, 0, s.second>>>(staged);
    add<<<4, kThreads, 0, s.second>>>(staged, staged, out);
    cudaEventRecord(s.used, s.second);
  }
  cudaDeviceSynchronize();
  cudaFreeHost(host);
}
int main() {
  event_between_kernels();
  nothing_in_common();
  two_readers();
  pinned_result();
  pinned_staging();
  device_staging();
  freed_by_a_stream();
  freed_by_the_host();
  memset_on_a_stream();
  default_stream();
  managed_result();
  copy_within_the_device();
  graph_of_two_branches();
  ring();
  CHECK(cudaGetLastError());
  return 0;
}
