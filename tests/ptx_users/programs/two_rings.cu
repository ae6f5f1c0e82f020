// A thread of the host asks, the main thread reads the answers, and a kernel stands between: two
// rings in mapped memory. Where a ring is not full or empty nobody polls.
#include <cuda/atomic>
#include <thread>

#include "check.h"

namespace {

constexpr unsigned kSlots = 4, kQuestions = 10, kWidth = 32;
using Count = cuda::atomic_ref<unsigned, cuda::thread_scope_system>;

struct Ring {
  int values[kSlots][kWidth];
  alignas(64) unsigned filled;
  alignas(64) unsigned emptied;
};

__device__ void wait_for(unsigned& count, unsigned beyond) {
  while (Count(count).load(cuda::memory_order_acquire) < beyond) __nanosleep(100);
}

__global__ void answer(Ring* in, Ring* out) {
  for (unsigned at = 0; at < kQuestions; ++at) {
    if (threadIdx.x == 0) {
      wait_for(in->filled, at + 1);
      if (at >= kSlots) wait_for(out->emptied, at + 1 - kSlots);
    }
    __syncwarp();
    out->values[at % kSlots][threadIdx.x] = 2 * in->values[at % kSlots][threadIdx.x];
    __syncwarp();
    if (threadIdx.x == 0) {
      Count(in->emptied).store(at + 1, cuda::memory_order_release);
      Count(out->filled).store(at + 1, cuda::memory_order_release);  // answered
    }
  }
}

void wait_on_host(unsigned& count, unsigned beyond) {
  while (Count(count).load(cuda::memory_order_acquire) < beyond) std::this_thread::yield();
}

}  // namespace

int main() {
  Ring *in, *out;
  CHECK(cudaHostAlloc(&in, sizeof(Ring), cudaHostAllocMapped));
  CHECK(cudaHostAlloc(&out, sizeof(Ring), cudaHostAllocMapped));
  in->filled = in->emptied = out->filled = out->emptied = 0;
  answer<<<1, kWidth>>>(in, out);
  CHECK(cudaGetLastError());
  std::thread asks([in] {
    for (unsigned at = 0; at < kQuestions; ++at) {
      if (at >= kSlots) wait_on_host(in->emptied, at + 1 - kSlots);  // room
      for (unsigned i = 0; i < kWidth; ++i) in->values[at % kSlots][i] = int(100 * at + i);
      Count(in->filled).store(at + 1, cuda::memory_order_release);
    }
  });
  int wrong = 0;
  for (unsigned at = 0; at < kQuestions; ++at) {
    wait_on_host(out->filled, at + 1);
    for (unsigned i = 0; i < kWidth; ++i) {
      wrong += out->values[at % kSlots][i] != int(200 * at + 2 * i);
    }
    Count(out->emptied).store(at + 1, cuda::memory_order_release);
  }
  asks.join();
  CHECK(cudaDeviceSynchronize());
  return wrong != 0;
}
