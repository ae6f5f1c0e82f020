// Loops of a kernel's own that poll: several barriers at once, or a barrier and a flag, by
// functions and by one lane, while copies are on their way; and a queue between CTAs.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>

#include "check.h"

namespace {

constexpr int kOnly = -1;  // the launch that is made; all of them
constexpr int kWords = 64, kBytes = kWords * 4, kStages = 3, kTiles = 7, kBlocks = 4;

struct Stages {
  alignas(128) int words[kStages][kWords];
  alignas(8) uint64_t full[kStages];
};

__device__ uint32_t address_of(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ void init(uint64_t* bars, int count) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < count; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address_of(&bars[i])));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
}

__device__ void bring(int* to, const int* from, uint64_t* bar) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_of(bar)),
               "r"(kBytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(address_of(to)),
      "l"(from), "r"(kBytes), "r"(address_of(bar))
      : "memory");
}

__device__ bool try_wait(const uint64_t* bar, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; "
      "}"
      : "=r"(done)
      : "r"(address_of(bar)), "r"(parity)
      : "memory");
  return done;
}

__device__ bool test_wait(const uint64_t* bar, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, "
      "p; "
      "}"
      : "=r"(done)
      : "r"(address_of(bar)), "r"(parity)
      : "memory");
  return done;
}

__noinline__ __device__ bool polled(const uint64_t* bar, uint32_t parity) {
  const bool done = test_wait(bar, parity);
  if (!done) __nanosleep(20);
  return done;
}

enum class How { kTry, kTest, kTimeout, kFunction, kThree, kFlag, kLane };

__device__ bool both(How how, Stages& s, volatile int* flag) {
  bool x = false, y = false, z = how != How::kThree;
  if (how == How::kTimeout) {
    const long long began = clock64();
    while (!x || !y) {
      x = try_wait(&s.full[0], 0);
      y = try_wait(&s.full[1], 0);
      if (clock64() - began > 10'000'000'000) return false;
      __nanosleep(64);
    }
    return true;
  }
  while (!x || !y || !z) {
    if (how == How::kTest) {
      x = test_wait(&s.full[0], 0);
      y = test_wait(&s.full[1], 0);
    } else if (how == How::kFunction) {
      x = polled(&s.full[0], 0);
      y = polled(&s.full[1], 0);
    } else if (how == How::kFlag) {
      x = *flag != 0;
      y = try_wait(&s.full[1], 0) && try_wait(&s.full[0], 0);
    } else {
      x = try_wait(&s.full[0], 0);
      y = try_wait(&s.full[1], 0);
      if (how == How::kThree) z = try_wait(&s.full[2], 0);
    }
  }
  return true;
}

template <How how>
__global__ void two(const int* in, int* out, int* flag) {
  __shared__ Stages s;
  init(s.full, kStages);
  if (threadIdx.x == 32) {
    for (int i = 0; i < kStages; ++i) bring(s.words[i], in + i * kWords, &s.full[i]);
    if (how == How::kFlag) {
      __threadfence();
      atomicExch(flag, 1);
    }
  }
  bool came = true;
  if (how != How::kLane || threadIdx.x % 32 == 0) came = both(how, s, flag);
  __syncwarp();
  if (how == How::kLane) {
    while (!try_wait(&s.full[0], 0)) {
    }
    while (!try_wait(&s.full[1], 0)) {
    }
  }
  out[threadIdx.x] = came ? s.words[0][threadIdx.x] + s.words[1][threadIdx.x] : -1;
  while (!try_wait(&s.full[2], 0)) {
  }
}

// One warp asks for the next tile's barrier before it works on this one's.
__global__ void ahead(const int* in, int* out) {
  __shared__ Stages s;
  __shared__ alignas(8) uint64_t empty[kStages];
  init(s.full, kStages);
  init(empty, kStages);
  if (threadIdx.x < 32) {
    for (int t = 0; t < kTiles && threadIdx.x == 0; ++t) {
      const int stage = t % kStages, turn = t / kStages;
      if (turn > 0) {
        while (!try_wait(&empty[stage], turn - 1 & 1)) {
        }
      }
      bring(s.words[stage], in + t * kWords, &s.full[stage]);
    }
    return;
  }
  const int lane = threadIdx.x % 32;
  int sum = 0;
  bool here = try_wait(&s.full[0], 0);
  for (int t = 0; t < kTiles; ++t) {
    const int stage = t % kStages, next = t + 1;
    while (!here) here = try_wait(&s.full[stage], t / kStages & 1);
    bool soon = next == kTiles;
    for (int i = lane; i < kWords; i += 32) {
      if (!soon) soon = try_wait(&s.full[next % kStages], next / kStages & 1);
      sum += s.words[stage][i];
    }
    __syncwarp();
    if (lane == 0) {
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_of(&empty[stage]))
                   : "memory");
    }
    here = soon;
  }
  out[lane] = sum;
}

struct Queue {
  int stop, filled, next, word[kBlocks];
};

__noinline__ __device__ bool waiting(const Queue* queue, int index) {
  const volatile Queue* at = queue;
  const bool empty = at->stop == 0 && at->filled <= index;
  if (empty) __nanosleep(100);
  return empty;
}

// The upper half of the CTAs takes what the lower half puts into the queue.
__global__ void queued(Queue* queue, int* out) {
  if (threadIdx.x != 0) return;
  const int index = blockIdx.x - kBlocks / 2;
  if (index < 0) {
    const int at = atomicAdd(&queue->next, 1);
    queue->word[at] = blockIdx.x + 1;
    __threadfence();
    while (atomicCAS(&queue->filled, at, at + 1) != at) {
    }
    return;
  }
  while (waiting(queue, index)) {
  }
  __threadfence();
  out[index] = queue->word[index];
}

int wrong(const char* what, int at, int got) {
  std::printf("%s: wrong at %d: %d\n", what, at, got);
  return 1;
}

}  // namespace

int main() {
  int host[kTiles * kWords], got[kWords];
  int want[32] = {};
  for (int i = 0; i < kTiles * kWords; ++i) {
    host[i] = i % 37;
    want[i % 32] += host[i];
  }
  int *in, *out, *flag;
  Queue* queue;
  CHECK(cudaMalloc(&in, sizeof host));
  CHECK(cudaMalloc(&out, sizeof got));
  CHECK(cudaMalloc(&flag, 4));
  CHECK(cudaMalloc(&queue, sizeof *queue));
  CHECK(cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice));
  CHECK(cudaMemset(flag, 0, 4));
  CHECK(cudaMemset(queue, 0, sizeof *queue));
  int number = 0;
  const auto run = [&](auto kernel, const char* what) {
    if (kOnly >= 0 && kOnly != number++) return 0;
    kernel<<<1, kWords>>>(in, out, flag);
    CHECK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
    for (int i = 0; i < kWords; ++i) {
      if (got[i] != host[i] + host[kWords + i]) return wrong(what, i, got[i]);
    }
    return 0;
  };
  if (run(two<How::kTry>, "try_wait") || run(two<How::kTest>, "test_wait") ||
      run(two<How::kTimeout>, "a time") || run(two<How::kFunction>, "a function") ||
      run(two<How::kThree>, "three") || run(two<How::kFlag>, "a flag") ||
      run(two<How::kLane>, "a lane")) {
    return 1;
  }
  if (kOnly < 0 || kOnly == number++) {
    ahead<<<1, kWords>>>(in, out);
    CHECK(cudaMemcpy(got, out, 128, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 32; ++i) {
      if (got[i] != want[i]) return wrong("ahead", i, got[i]);
    }
  }
  if (kOnly >= 0 && kOnly != number) return 0;
  queued<<<kBlocks, 32>>>(queue, out);
  CHECK(cudaMemcpy(got, out, kBlocks * 2, cudaMemcpyDeviceToHost));
  int sum = 0;
  for (int i = 0; i < kBlocks / 2; ++i) sum += got[i];
  return sum == 3 ? 0 : wrong("queued", 0, sum);
}
