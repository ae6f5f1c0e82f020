// Streams for host code on the emulator. The current one is the loader's to say: of a script the
// default stream, of a step the stream of its call.
#pragma once

#include <c10/cuda/CUDAFunctions.h>

// Of the CUDA runtime that stands in (cuda_runtime/loader.cpp).
extern "C" cudaStream_t kb_cudart_current_stream();
extern "C" void kb_cudart_set_current_stream(cudaStream_t stream);

namespace c10::cuda {

class CUDAStream {
 public:
  explicit CUDAStream(cudaStream_t stream) : stream_(stream) {}

  operator cudaStream_t() const { return stream_; }
  cudaStream_t stream() const { return stream_; }
  bool operator==(const CUDAStream& other) const noexcept { return stream_ == other.stream_; }
  bool operator!=(const CUDAStream& other) const noexcept { return stream_ != other.stream_; }
  DeviceIndex device_index() const { return 0; }
  // Where its tensors are, too: their device is the CPU here.
  Device device() const { return Device(DeviceType::CPU); }
  int64_t id() const { return reinterpret_cast<int64_t>(stream_); }
  bool query() const { return cudaStreamQuery(stream_) == cudaSuccess; }
  void synchronize() const { C10_CUDA_CHECK(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_;
};

inline CUDAStream getCurrentCUDAStream(DeviceIndex = -1) {
  return CUDAStream(kb_cudart_current_stream());
}
inline void setCurrentCUDAStream(CUDAStream stream) {
  kb_cudart_set_current_stream(stream.stream());
}
inline CUDAStream getDefaultCUDAStream(DeviceIndex = -1) {
  return CUDAStream(nullptr);
}
inline CUDAStream getStreamFromExternal(cudaStream_t stream, DeviceIndex) {
  return CUDAStream(stream);
}
// Streams of torch's pool are in no order with the default stream.
inline CUDAStream getStreamFromPool(const bool = false, DeviceIndex = -1) {
  cudaStream_t stream;
  C10_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return CUDAStream(stream);
}

}  // namespace c10::cuda
