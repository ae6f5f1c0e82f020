// Does a dependent launch (programmatic stream serialization) begin before its predecessor has
// ended if the stream has an operation between the two?
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <thread>
#define DO(x)                                        \
  do {                                               \
    cudaError_t r = (x);                             \
    if (r != cudaSuccess) {                          \
      printf("%s: %s\n", #x, cudaGetErrorString(r)); \
      exit(1);                                       \
    }                                                \
  } while (0)
__device__ unsigned long long now() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}
__global__ void first(unsigned long long* t, int trigger) {
  if (trigger) cudaTriggerProgrammaticLaunchCompletion();
  unsigned long long begin = now();
  while (now() - begin < 2000000) {
  }
  t[0] = now();
}
__global__ void second(unsigned long long* t) {
  t[1] = now();
  cudaGridDependencySynchronize();
  t[2] = now();
}
static void dependent(cudaStream_t s, unsigned long long* t, int attr) {
  cudaLaunchConfig_t c{};
  c.gridDim = 1;
  c.blockDim = 1;
  c.stream = s;
  cudaLaunchAttribute a{};
  a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  a.val.programmaticStreamSerializationAllowed = 1;
  c.attrs = &a;
  c.numAttrs = attr;
  DO(cudaLaunchKernelEx(&c, second, t));
}
int main() {
  unsigned long long *t, h[3];
  char *d, *p;
  DO(cudaMalloc(&t, 64));
  DO(cudaMalloc(&d, 64));
  DO(cudaMallocHost(&p, 64));
  cudaStream_t s, o;
  DO(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  DO(cudaStreamCreateWithFlags(&o, cudaStreamNonBlocking));
  cudaEvent_t timed, plain, other;
  DO(cudaEventCreate(&timed));
  DO(cudaEventCreateWithFlags(&plain, cudaEventDisableTiming));
  DO(cudaEventCreateWithFlags(&other, cudaEventDisableTiming));
  DO(cudaEventRecord(other, o));
  DO(cudaDeviceSynchronize());
  const char* names[] = {"nothing",
                         "nothing, no trigger",
                         "nothing, no attribute",
                         "cudaEventRecord (disable timing)",
                         "cudaEventRecord (timing)",
                         "cudaStreamWaitEvent (done event)",
                         "cudaMemsetAsync",
                         "cudaMemcpyAsync d2h",
                         "cudaLaunchHostFunc",
                         "record (disable timing), another stream waits for it",
                         "cudaMallocAsync",
                         "cudaFreeAsync of memory allocated before"};
  for (int rep = 0; rep < 3; ++rep)
    for (int k = 0; k < 12; ++k) {
      void* before = nullptr;
      if (k == 11) DO(cudaMallocAsync(&before, 1 << 20, s));
      DO(cudaDeviceSynchronize());
      first<<<1, 1, 0, s>>>(t, k != 1);
      void* q = nullptr;
      if (k == 3) DO(cudaEventRecord(plain, s));
      if (k == 4) DO(cudaEventRecord(timed, s));
      if (k == 5) DO(cudaStreamWaitEvent(s, other, 0));
      if (k == 6) DO(cudaMemsetAsync(d, 0, 64, s));
      if (k == 7) DO(cudaMemcpyAsync(p, d, 64, cudaMemcpyDeviceToHost, s));
      if (k == 8) DO(cudaLaunchHostFunc(s, [](void*) {}, nullptr));
      if (k == 9) {
        DO(cudaEventRecord(plain, s));
        DO(cudaStreamWaitEvent(o, plain, 0));
      }
      if (k == 10) DO(cudaMallocAsync(&q, 1 << 20, s));
      if (k == 11) DO(cudaFreeAsync(before, s));
      dependent(s, t, k != 2);
      DO(cudaDeviceSynchronize());
      if (q) DO(cudaFree(q));
      DO(cudaMemcpy(h, t, 24, cudaMemcpyDeviceToHost));
      printf(
          "rep %d, between: %-55s second begins %+8.1f us from the end of the first, its wait "
          "returns %+8.1f us\n",
          rep, names[k], (double)(long long)(h[1] - h[0]) / 1e3,
          (double)(long long)(h[2] - h[0]) / 1e3);
    }
  return 0;
}
