// Guards for host code on the emulator: of devices there is one, of streams the current one.
#pragma once

#include <c10/cuda/CUDAStream.h>

#include <optional>

namespace c10::cuda {

struct CUDAGuard {
  explicit CUDAGuard(DeviceIndex) {}
  explicit CUDAGuard(Device) {}
  void set_device(Device) {}
  void reset_device(Device) {}
  void set_index(DeviceIndex) {}
};

struct OptionalCUDAGuard {
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<Device>) {}
  explicit OptionalCUDAGuard(std::optional<DeviceIndex>) {}
  void set_device(Device) {}
  void set_index(DeviceIndex) {}
  void reset() {}
};

class CUDAStreamGuard {
 public:
  explicit CUDAStreamGuard(CUDAStream stream) : before_(getCurrentCUDAStream()) {
    setCurrentCUDAStream(stream);
  }
  ~CUDAStreamGuard() { setCurrentCUDAStream(before_); }
  CUDAStreamGuard(const CUDAStreamGuard&) = delete;
  CUDAStreamGuard& operator=(const CUDAStreamGuard&) = delete;
  CUDAStream original_stream() const { return before_; }
  CUDAStream current_stream() const { return getCurrentCUDAStream(); }

 private:
  CUDAStream before_;
};

}  // namespace c10::cuda
