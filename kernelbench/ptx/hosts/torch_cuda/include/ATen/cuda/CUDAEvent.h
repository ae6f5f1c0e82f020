// Events for host code on the emulator; times mean nothing.
#pragma once

#include <ATen/cuda/CUDAContextLight.h>

namespace at::cuda {

class CUDAEvent {
 public:
  explicit CUDAEvent(unsigned flags = cudaEventDisableTiming) {
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, flags));
  }
  ~CUDAEvent() { cudaEventDestroy(event_); }
  CUDAEvent(const CUDAEvent&) = delete;
  CUDAEvent& operator=(const CUDAEvent&) = delete;

  operator cudaEvent_t() const { return event_; }
  cudaEvent_t event() const { return event_; }
  void record() { record(getCurrentCUDAStream()); }
  void record(const CUDAStream& stream) { C10_CUDA_CHECK(cudaEventRecord(event_, stream)); }
  void block(const CUDAStream& stream) { C10_CUDA_CHECK(cudaStreamWaitEvent(stream, event_, 0)); }
  bool query() const { return cudaEventQuery(event_) == cudaSuccess; }
  void synchronize() const { C10_CUDA_CHECK(cudaEventSynchronize(event_)); }

 private:
  cudaEvent_t event_;
};

}  // namespace at::cuda
