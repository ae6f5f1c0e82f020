// What CTAs of a kernel share while they run, kept from call to call.
#pragma once

#include "kept_buffer.cuh"

namespace kb {

// Zero at first; every call leaves it ready for the next.
template <typename T>
class KeptZeroed {
 public:
  T* get(rt::Stream stream) {
    if (data_ == nullptr) {
      data_ = buffer_.reserve(1);
      rt::memset_async(data_, 0, sizeof *data_, stream);
    }
    return data_;
  }

 private:
  DeviceBuffer<T> buffer_;
  T* data_ = nullptr;
};

}  // namespace kb
