// Device memory for one call only: allocated, filled by a blocking copy and freed in each.
#pragma once

#include <vector>

#include "rt.cuh"

namespace kb {

class CallMemory {
 public:
  CallMemory() = default;
  CallMemory(const CallMemory&) = delete;
  CallMemory& operator=(const CallMemory&) = delete;
  // After another failure only: what a second one says is lost.
  ~CallMemory() {
    try {
      free();
    } catch (const rt::Error&) {
    }
  }

  // A copy of `values` on the device.
  template <typename T>
  const T* copy(const T* values, size_t count) {
    blocks_.push_back(nullptr);
    blocks_.back() = rt::device_malloc(count * sizeof(T));
    rt::copy_to_device(blocks_.back(), values, count * sizeof(T));
    return static_cast<const T*>(blocks_.back());
  }
  template <typename T>
  const T* copy(const std::vector<T>& values) {
    return copy(values.data(), values.size());
  }

  // Frees every copy; each waits for the kernels that were launched (cudaFree synchronizes), so
  // that a fault of theirs may surface here.
  void free() {
    while (!blocks_.empty()) {
      void* block = blocks_.back();
      blocks_.pop_back();
      if (block != nullptr) rt::device_free(block);
    }
  }

 private:
  std::vector<void*> blocks_;
};

}  // namespace kb
