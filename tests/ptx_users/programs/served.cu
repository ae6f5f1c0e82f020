// A kernel serves two streams: one rings when a job is there, the other waits for the answer.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cuda/atomic>

#include "check.h"

constexpr unsigned kJobs = 4, kCount = 48, kSlots = 2;
constexpr size_t kBytes = kCount * sizeof(int);
using Word = cuda::atomic_ref<unsigned, cuda::thread_scope_system>;

__global__ void serve(const int* in, int* out, unsigned* rung, unsigned* answered) {
  for (unsigned job = 1; job <= kJobs; ++job) {
    if (threadIdx.x == 0) {
      while (Word(*rung).load(cuda::memory_order_acquire) < job) __nanosleep(50);
    }
    __syncthreads();
    const unsigned at = job % kSlots * kCount + threadIdx.x;
    out[at] = in[at] + 1;
    __syncthreads();  // all of the answer
    if (threadIdx.x == 0) Word(*answered).store(job, cuda::memory_order_release);
  }
}

int main() {
  int *in, *out, *host;
  unsigned* words;
  CHECK(cudaMalloc(&in, kSlots * kBytes));
  CHECK(cudaMalloc(&out, kSlots * kBytes));
  CHECK(cudaMalloc(&words, 2 * sizeof *words));
  CHECK(cudaMallocHost(&host, 2 * kJobs * kBytes));
  int* const answers = host + kJobs * kCount;
  for (unsigned at = 0; at < kJobs * kCount; ++at) host[at] = static_cast<int>(3 * at);
  CHECK(cudaMemset(words, 0, 2 * sizeof *words));
  CHECK(cudaDeviceSynchronize());
  cudaStream_t server, up, down;
  for (cudaStream_t* each : {&server, &up, &down}) {
    CHECK(cudaStreamCreateWithFlags(each, cudaStreamNonBlocking));
  }
  cudaEvent_t taken[kSlots];
  for (cudaEvent_t& each : taken) CHECK(cudaEventCreateWithFlags(&each, cudaEventDisableTiming));
  const auto rung = reinterpret_cast<CUdeviceptr>(words), answered = rung + sizeof *words;
  serve<<<1, kCount, 0, server>>>(in, out, words, words + 1);
  CHECK(cudaGetLastError());
  bool ok = true;
  for (unsigned job = 1; job <= kJobs; ++job) {
    const unsigned slot = job % kSlots, begin = (job - 1) * kCount;
    if (job > kSlots) {
      ok = ok && !cuStreamWaitValue32(up, answered, job - kSlots, CU_STREAM_WAIT_VALUE_GEQ);
      CHECK(cudaStreamWaitEvent(up, taken[slot]));  // its answer
    }
    CHECK(cudaMemcpyAsync(in + slot * kCount, host + begin, kBytes, cudaMemcpyHostToDevice, up));
    ok = ok && !cuStreamWriteValue32(up, rung, job, CU_STREAM_WRITE_VALUE_DEFAULT);
    ok = ok && !cuStreamWaitValue32(down, answered, job, CU_STREAM_WAIT_VALUE_GEQ);
    CHECK(cudaMemcpyAsync(answers + begin, out + slot * kCount, kBytes, cudaMemcpyDeviceToHost,
                          down));
    CHECK(cudaEventRecord(taken[slot], down));
  }
  CHECK(cudaStreamSynchronize(down));
  CHECK(cudaStreamSynchronize(server));
  for (unsigned at = 0; at < kJobs * kCount; ++at) {
    if (answers[at] != host[at] + 1) return 1;
  }
  return ok ? 0 : 2;
}
