// The emulator: plain C++, each CUDA thread a fiber. See runtime/core.hpp.
#pragma once

#define KB_DEVICE inline __attribute__((always_inline))
#define KB_DEVICE_APART static __attribute__((noinline))
#define KB_HOST_DEVICE inline __attribute__((always_inline))
#define KB_GLOBAL
#define KB_GRID_CONSTANT(T) const T&
#define KB_LAUNCH_BOUNDS(threads, ctas_per_sm)
// What follows emulates one instruction: of that, predictions count the mark only.
#if !defined(KB_EMU_TIMED)
#define KB_EMU_ONE
#elif defined(__x86_64__)
#define KB_EMU_ONE asm volatile("fnop")
#else
#define KB_EMU_ONE asm volatile("yield")
#endif

namespace kb {

// The executor, as the default of the template parameter that delays kAbsent's assertion.
struct Target {};

}  // namespace kb
