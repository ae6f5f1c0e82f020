// Memory that outlives the call: it grows when a call needs more, and is given back with the
// process. For static variables of a step's host path, whose calls follow each other on a stream.
#pragma once

#include <utility>

#include "rt.cuh"

namespace kb {

template <typename T, void* (*kAllocate)(size_t), void (*kFree)(void*)>
class KeptBuffer {
 public:
  // At least `count` elements; what they held is lost when the buffer grows.
  T* reserve(size_t count) {
    if (count > capacity_) {
      capacity_ = 0;
      if (data_ != nullptr) kFree(std::exchange(data_, nullptr));
      data_ = static_cast<T*>(kAllocate(count * sizeof(T)));
      capacity_ = count;
    }
    return data_;
  }

 private:
  T* data_ = nullptr;
  size_t capacity_ = 0;
};

template <typename T>
using DeviceBuffer = KeptBuffer<T, rt::device_malloc, rt::device_free>;
template <typename T>
using PinnedBuffer = KeptBuffer<T, rt::pinned_malloc, rt::pinned_free>;

// A device array and the page-locked memory that it is copied from.
template <typename T>
class StagedArray {
 public:
  // Host memory for the next `count` elements; not while a copy of the last ones is running.
  T* stage(size_t count) {
    count_ = count;
    return host_.reserve(count);
  }
  // Queues the copy of what was staged.
  const T* upload(rt::Stream stream) {
    T* device = device_.reserve(count_);
    rt::copy_to_device_async(device, host_.reserve(count_), count_ * sizeof(T), stream);
    return device;
  }

 private:
  PinnedBuffer<T> host_;
  DeviceBuffer<T> device_;
  size_t count_ = 0;
};

}  // namespace kb
