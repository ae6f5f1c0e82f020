// malloc of kernels (CUDA C++ Programming Guide, "Dynamic Global Memory Allocation and
// Operations"). How much is taken stands at the heap's beginning, so that it is as it was when the
// host gives memory its first values back before another schedule. What is freed is not given out
// again: accesses of its next owner would have to be in order with those of the last.
#include <atomic>
#include <cstring>

#include "api_ptx.hpp"

namespace kb::emu {

namespace {

constexpr uint64_t kAlign = 16;
std::byte* heap = nullptr;
uint64_t heap_bytes = 0;

}  // namespace

// PTX: call (9.7.12.5) of malloc, which the driver provides: null if it does not fit.
uint64_t heap_allocate(uint64_t bytes) {
  if (heap == nullptr || bytes == 0 || bytes > heap_bytes) return 0;
  std::atomic_ref taken(*reinterpret_cast<uint64_t*>(heap));
  const uint64_t at = taken.fetch_add((bytes + kAlign - 1) / kAlign * kAlign);
  return at + bytes <= heap_bytes ? reinterpret_cast<uint64_t>(heap) + at : 0;
}

}  // namespace kb::emu

// Memory of the host's for kernels to take from.
extern "C" __attribute__((visibility("default"))) void kb_emu_heap(void* memory, uint64_t bytes) {
  kb::emu::heap = static_cast<std::byte*>(memory);
  kb::emu::heap_bytes = bytes;
  std::memcpy(memory, &kb::emu::kAlign, sizeof kb::emu::kAlign);
}
