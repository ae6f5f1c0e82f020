// red.async and cp.reduce.async.bulk in shared memory of a cluster, against what a host computes:
// both CTAs combine with words of CTA 1, which waits for all of them.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

constexpr int kThreads = 32, kCtas = 2;

__device__ uint32_t far(const void* own) {
  uint32_t to;
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(own));
  asm volatile("mapa.shared::cluster.u32 %0, %1, 1;" : "=r"(to) : "r"(at));
  return to;
}

__device__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.aligned;\n"
      "barrier.cluster.wait.aligned;" ::
          : "memory");
}

// Words set by `start` are combined with those of both CTAs by `red`, or by `bulk` with a buffer.
template <typename T, typename Red, typename Bulk>
__device__ void combine(const T* start, const T* given, T* out, Red red, Bulk bulk) {
  __shared__ alignas(16) T words[2][kThreads];
  __shared__ alignas(16) T sent[kThreads];
  __shared__ alignas(8) uint64_t barrier;
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  const int thread = threadIdx.x;
  const auto bar = static_cast<uint32_t>(__cvta_generic_to_shared(&barrier));
  words[0][thread] = words[1][thread] = start[thread];
  sent[thread] = given[rank * kThreads + thread];
  if (thread == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
    asm volatile("fence.mbarrier_init.release.cluster;");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar),
                 "r"(static_cast<uint32_t>(2 * kCtas * kThreads * sizeof(T)))
                 : "memory");
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  cluster_sync();
  const uint32_t to = far(&barrier);
  red(far(&words[0][thread]), sent[thread], to);
  if (thread == 0) {
    bulk(far(&words[1][0]), static_cast<uint32_t>(__cvta_generic_to_shared(sent)),
         static_cast<uint32_t>(sizeof sent), to);
  }
  if (rank == 1) {
    uint32_t done = 0;
    while (!done) {
      asm volatile(
          "{ .reg .pred p;\n"
          "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0;\n"
          "selp.u32 %0, 1, 0, p; }"
          : "=r"(done)
          : "r"(bar)
          : "memory");
    }
    out[thread] = words[0][thread];
    out[kThreads + thread] = words[1][thread];
  }
  cluster_sync();
}

// Name, operation, type, C's type and the constraint of its registers.
#define CASES(X)                      \
  X(add_u32, add, u32, uint32_t, "r") \
  X(add_s32, add, s32, int32_t, "r")  \
  X(add_u64, add, u64, uint64_t, "l") \
  X(min_u32, min, u32, uint32_t, "r") \
  X(min_s32, min, s32, int32_t, "r")  \
  X(max_u32, max, u32, uint32_t, "r") \
  X(max_s32, max, s32, int32_t, "r")  \
  X(inc_u32, inc, u32, uint32_t, "r") \
  X(dec_u32, dec, u32, uint32_t, "r") \
  X(and_b32, and, b32, uint32_t, "r") \
  X(or_b32, or, b32, uint32_t, "r")   \
  X(xor_b32, xor, b32, uint32_t, "r")

#define KERNEL(name, op, type, T, constraint)                                                      \
  __global__ void __cluster_dims__(2) name(const void* start, const void* given, void* out) {      \
    combine<T>(                                                                                    \
        static_cast<const T*>(start), static_cast<const T*>(given), static_cast<T*>(out),          \
        [](uint32_t to, T value, uint32_t bar) {                                                   \
          asm volatile(                                                                            \
              "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes." #op        \
              "." #type " [%0], %1, [%2];" ::"r"(to),                                              \
              constraint(value), "r"(bar)                                                          \
              : "memory");                                                                         \
        },                                                                                         \
        [](uint32_t to, uint32_t from, uint32_t bytes, uint32_t bar) {                             \
          asm volatile(                                                                            \
              "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes." #op \
              "." #type " [%0], [%1], %2, [%3];" ::"r"(to),                                        \
              "r"(from), "r"(bytes), "r"(bar)                                                      \
              : "memory");                                                                         \
        });                                                                                        \
  }
CASES(KERNEL)

template <typename T>
T combined(const char* name, T old, T given) {
  using Bits = std::make_unsigned_t<T>;
  const auto is = [name](const char* operation) {
    return std::strncmp(name, operation, std::strlen(operation)) == 0;
  };
  if (is("add")) return static_cast<T>(static_cast<Bits>(old) + static_cast<Bits>(given));
  if (is("min")) return std::min(old, given);
  if (is("max")) return std::max(old, given);
  if (is("inc")) return old >= given ? 0 : old + 1;
  if (is("dec")) return old == 0 || old > given ? given : old - 1;
  if (is("and")) return old & given;
  return is("or") ? old | given : old ^ given;
}

uint32_t state = 1;
uint32_t drawn() {
  return (state = state * 1664525u + 1013904223u) ^ state >> 16;
}

// Either CTA may come first.
template <typename T>
int wrong_of(const char* name, void (*kernel)(const void*, const void*, void*), char* memory) {
  std::vector<T> start(kThreads), given(kCtas * kThreads), out(2 * kThreads);
  for (T& each : start) each = static_cast<T>(drawn());
  for (T& each : given) each = static_cast<T>(drawn());
  if (sizeof(T) == 8) given[0] = static_cast<T>(~0ull >> 1);
  for (int i = 0; i < kThreads; i += 2) given[i] = start[i] + i % 3;
  cudaMemcpy(memory, start.data(), sizeof(T) * start.size(), cudaMemcpyHostToDevice);
  cudaMemcpy(memory + 1024, given.data(), sizeof(T) * given.size(), cudaMemcpyHostToDevice);
  kernel<<<kCtas, kThreads>>>(memory, memory + 1024, memory + 2048);
  if (cudaMemcpy(out.data(), memory + 2048, sizeof(T) * out.size(), cudaMemcpyDeviceToHost) !=
      cudaSuccess) {
    std::printf("%s failed\n", name);
    return 1;
  }
  int wrong = 0;
  for (int i = 0; i < 2 * kThreads; ++i) {
    const T first = given[i % kThreads], second = given[kThreads + i % kThreads];
    const T begin = start[i % kThreads];
    wrong += out[i] != combined(name, combined(name, begin, first), second) &&
             out[i] != combined(name, combined(name, begin, second), first);
  }
  if (wrong != 0) std::printf("%s: %d wrong\n", name, wrong);
  return wrong;
}

int main() {
  char* memory = nullptr;
  cudaMalloc(&memory, 4096);
  int wrong = 0;
#define RUN(name, op, type, T, constraint) wrong += wrong_of<T>(#name, name, memory);
  CASES(RUN)
  std::printf("%d wrong\n", wrong);
  return wrong != 0;
}
