// Small kernels that run on the GPU and in the emulator: same source, same input, and the outputs
// must be equal to the bit. A case is a host function that launches kernels on one input and one
// output, both in device memory; everything it does on the host goes through kb::rt.
#pragma once

#include <cstddef>

#include "entry.cuh"

using namespace kb;

struct Case {
  const uint32_t* in;    // device
  const uint32_t* host;  // the input again, for parameters that the host needs
  uint32_t* out;         // device, filled with 0xa5
  size_t in_bytes;
  size_t out_bytes;
};

inline int run_case(void (*body)(const Case&), const void* in, size_t in_bytes, void* out,
                    size_t out_bytes, char* message, size_t size) {
  return guarded(message, size, [&] {
    void* device_in = rt::device_malloc(in_bytes);
    void* device_out = rt::device_malloc(out_bytes);
    rt::copy_to_device(device_in, in, in_bytes);
    rt::memset_async(device_out, 0xa5, out_bytes, {});
    body({static_cast<const uint32_t*>(device_in), static_cast<const uint32_t*>(in),
          static_cast<uint32_t*>(device_out), in_bytes, out_bytes});
    rt::stream_synchronize({});
    rt::copy_to_host(out, device_out, out_bytes);
    rt::device_free(device_in);
    rt::device_free(device_out);
  });
}

#define PARITY_CASE(name)                                                                \
  static void case_##name(const Case& test);                                             \
  KB_EXPORT int run_##name(const void* in, size_t in_bytes, void* out, size_t out_bytes, \
                           char* message, size_t size) {                                 \
    return run_case(case_##name, in, in_bytes, out, out_bytes, message, size);           \
  }                                                                                      \
  static void case_##name(const Case& test)
