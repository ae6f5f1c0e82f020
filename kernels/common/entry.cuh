// The C side of a step: one function in, status and message out, and the constants that describe
// the kernel. Loaded from Python through ctypes; no exception crosses it.
#pragma once

#include <cstdio>

#include "rt.cuh"

#define KB_EXPORT extern "C" __attribute__((visibility("default")))

namespace kb {

// What entry points return.
enum Status : int {
  kOk = 0,
  kInvalidCall = 1,  // the caller's fault: a limit of the step is broken
  kFailed = 2,       // the runtime's or the kernel's: out of memory, a hang, a finding
};

// A call that breaks a limit of the step; what() says which, in one line.
struct InvalidCall : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Runs `body`; what it throws becomes a status and one line in `message` (cut to `size` bytes).
template <typename Body>
int guarded(char* message, size_t size, Body&& body) {
  try {
    body();
    return kOk;
  } catch (const InvalidCall& error) {
    std::snprintf(message, size, "%s", error.what());
    return kInvalidCall;
  } catch (const std::exception& error) {
    std::snprintf(message, size, "%s", error.what());
    return kFailed;
  }
}

// A step's constants, for `kernelbench inspect`; 0 where there is no such thing.
struct Description {
  int32_t tile_m, tile_n, tile_k;
  int32_t stages;
  int32_t accumulators;
  int32_t threads;
  int32_t cluster;
  int32_t shared_bytes;
  int32_t tmem_columns;
};

}  // namespace kb
