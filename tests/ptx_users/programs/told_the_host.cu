// What tells the host how far work has come: a function that takes a lock which another thread
// holds while it makes a call, and a word of progress that the host reads but does not wait for.
#include <cuda_runtime.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "check.h"

namespace {

constexpr int kSteps = 3;

std::mutex lock;
std::condition_variable change;
std::atomic<bool> entered = false;
bool told = false;

__global__ void fill(int* to) {
  to[threadIdx.x] = threadIdx.x + 1;
}

__global__ void advance(int* results, volatile int* flags, volatile int* progress) {
  for (int step = 0; step < kSteps; ++step) {
    *progress = step + 1;
    results[step] = 7 * step;
    __threadfence_system();
    flags[step] = 1;
  }
}

void CUDART_CB tell(void*) {
  entered = true;
  const std::lock_guard held(lock);
  told = true;
  change.notify_all();
}

int copied_by_another_thread() {
  int *device, *host;
  cudaStream_t first, second;
  cudaEvent_t event;
  CHECK(cudaMalloc(&device, 32 * sizeof *device));
  CHECK(cudaMallocHost(&host, 32 * sizeof *host));
  CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  CHECK(cudaEventCreate(&event));
  std::unique_lock held(lock);
  std::thread other([&] {
    fill<<<1, 32, 0, first>>>(device);
    CHECK(cudaMemcpyAsync(host, device, 32 * sizeof *host, cudaMemcpyDeviceToHost, first));
    CHECK(cudaLaunchHostFunc(first, tell, nullptr));
    CHECK(cudaStreamSynchronize(first));
    return 0;
  });
  while (!entered) std::this_thread::yield();
  CHECK(cudaEventRecord(event, second));
  change.wait(held, [] { return told; });
  int wrong = 0;
  for (int at = 0; at < 32; ++at) wrong += host[at] != at + 1;
  held.unlock();
  other.join();
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaFree(device));
  CHECK(cudaFreeHost(host));
  return wrong;
}

int read_while_it_changes() {
  int* mapped;
  CHECK(cudaHostAlloc(&mapped, 256, cudaHostAllocMapped));
  for (int at = 0; at < 64; ++at) mapped[at] = 0;
  advance<<<1, 1>>>(mapped, mapped + 16, mapped + 32);
  CHECK(cudaGetLastError());
  int wrong = 0;
  for (int step = 0; step < kSteps; ++step) {
    while (__atomic_load_n(mapped + 16 + step, __ATOMIC_ACQUIRE) == 0) {
    }
    wrong += __atomic_load_n(mapped + 32, __ATOMIC_RELAXED) < step + 1;
    wrong += mapped[step] != 7 * step;
  }
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaFreeHost(mapped));
  return wrong;
}

}  // namespace

int main() {
  return copied_by_another_thread() + read_while_it_changes() != 0;
}
