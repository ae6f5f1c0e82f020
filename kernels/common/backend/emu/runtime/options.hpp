// What the loader sets before a launch, the sizes that every part of the emulator shares, and the
// names of its parts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kb::emu {

// Where in the step's library an operation was called; the reader maps it to file and line.
using Pc = const void*;
#define KB_EMU_CALLER (__builtin_extract_return_addr(__builtin_return_address(0)))
// Whether events are kept (trace.hpp); if so, a primitive is one.
[[gnu::visibility("hidden")]] extern bool tracing;
Pc trace_primitive(Pc pc);
#ifdef KB_EMU_UNTRACED
#define KB_EMU_PC KB_EMU_CALLER
#else
#define KB_EMU_PC \
  (kb::emu::tracing ? kb::emu::trace_primitive(KB_EMU_CALLER) : kb::emu::Pc(KB_EMU_CALLER))
#endif

inline constexpr uint32_t kWarpSize = 32;
// As on the hardware, shared memory starts at 1024 of its window.
inline constexpr uint32_t kSharedBase = 0x400;
inline constexpr uint32_t kMaxSharedBytes = 232448;
// From one CTA's shared memory to the next in the host's memory; what is between them faults.
// The low 24 bits of a generic address are those of the shared address, as on hardware: kernels
// make descriptors of either.
inline constexpr size_t kSharedStride = size_t{1} << 24;
// Copies whose completion the clocks tell apart at one time; beyond that slots are reused, which
// can hide a race between two copies but never invents one.
inline constexpr uint32_t kCopySlots = 64;

struct Thread;
struct Warp;
struct Cta;
struct Cluster;
struct Launch;
struct StreamOperation;

// Set by the loader before a launch (kb_emu_configure); plain data, mirrored in Python.
struct Options {
  uint32_t sms = 148;
  uint32_t os_threads = 0;  // 0: one per core
  uint32_t check = 0;       // 1: shadow memory, adversarial schedules
  uint32_t mma_rounding =
      0;                     // 0: fp32 FMA; 1: the hardware's model (35 fractional bits, truncated)
  uint32_t broken_fact = 0;  // a Fact, to prove that the kernels' tests see it
  uint32_t max_findings = 64;
  uint32_t limit_ms = 0;      // of a launch; 0: none
  uint32_t elect_lowest = 0;  // elect.sync elects the lowest lane in every schedule
  uint64_t seed = 0;
};
extern Options current_options;
inline const Options& options() {
  return current_options;
}
// Whether the checker is on. Without it asynchronous operations complete where they are issued.
inline bool checking() {
  return current_options.check != 0;
}

}  // namespace kb::emu
