// The emulator: plain C++, each CUDA thread a fiber. See runtime/core.hpp.
#pragma once

#define KB_DEVICE inline __attribute__((always_inline))
#define KB_DEVICE_APART static __attribute__((noinline))
#define KB_HOST_DEVICE inline __attribute__((always_inline))
#define KB_GLOBAL
#define KB_GRID_CONSTANT(T) const T&
#define KB_LAUNCH_BOUNDS(threads, ctas_per_sm)

namespace kb {

// The executor, as the default of the template parameter that delays kAbsent's assertion.
struct Target {};

}  // namespace kb
