// What ggml's files of CUDA want of the rest of ggml, for one device.
#pragma once
#include "common.cuh"
//
#include "host.hpp"

const ggml_cuda_device_info& ggml_cuda_info() {
  static const ggml_cuda_device_info info = [] {
    ggml_cuda_device_info made{};
    made.device_count = 1;
    made.devices[0].cc = 900;
    made.devices[0].nsm = 132;
    made.devices[0].smpb = 48 << 10;
    made.devices[0].smpbo = 227 << 10;
    made.devices[0].warp_size = 32;
    return made;
  }();
  return info;
}
int ggml_cuda_get_device() {
  return 0;
}
void ggml_cuda_set_device(int) {}
void ggml_cuda_error(const char* call, const char*, const char* file, int line,
                     const char* message) {
  std::printf("%s:%d: %s: %s\n", file, line, call, message);
  std::exit(1);
}
extern "C" void ggml_abort(const char* file, int line, const char*, ...) {
  std::printf("%s:%d: abort\n", file, line);
  std::exit(1);
}
// Named by functions that are not called here.
extern "C" int64_t ggml_nrows(const ggml_tensor*) {
  std::abort();
}
extern "C" int64_t ggml_nelements(const ggml_tensor*) {
  std::abort();
}
extern "C" size_t ggml_nbytes(const ggml_tensor*) {
  std::abort();
}
extern "C" bool ggml_is_contiguous(const ggml_tensor*) {
  std::abort();
}
extern "C" bool ggml_is_contiguous_rows(const ggml_tensor*) {
  std::abort();
}
extern "C" bool ggml_are_same_shape(const ggml_tensor*, const ggml_tensor*) {
  std::abort();
}
extern "C" size_t ggml_type_size(ggml_type) {
  std::abort();
}
extern "C" ggml_unary_op ggml_get_unary_op(const ggml_tensor*) {
  std::abort();
}
std::unique_ptr<ggml_cuda_pool> ggml_backend_cuda_context::new_pool_for_device(int, int) {
  std::abort();
}
