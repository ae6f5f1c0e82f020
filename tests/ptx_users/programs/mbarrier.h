// A barrier in shared memory, for the programs beside this.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

__device__ inline uint32_t address_of(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ inline void init(uint64_t* bar, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_of(bar)), "r"(count));
}
__device__ inline void wait(const uint64_t* bar, uint32_t parity) {
  uint32_t done = 0;
  while (!done) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
        " selp.b32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(address_of(bar)), "r"(parity)
        : "memory");
  }
}
__device__ inline void arrive(uint64_t* bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_of(bar)) : "memory");
}
