// Which grids of a stream may overlap (grids.cpp), and what they did to global memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "options.hpp"

namespace kb::rt {
struct Stream;
}  // namespace kb::rt

namespace kb::emu {

// Sets what may run beside a launch, and keeps what a dependent one needs to know of it.
void order_grid(Launch& launch, bool dependent, rt::Stream stream);
void grid_completed(const Launch& launch, rt::Stream stream);
void cta_completed(Cta& cta);

// The latest of the earlier grids that wrote any of some bytes or, for a write, read any of them
// after its trigger. serial 0: none.
struct GridAccess {
  uint64_t serial = 0;
  bool wrote = false;
  std::string buffer;
};
// Checks an access to what that grid accessed: whether it may still run.
void check_grids(const GridAccess& last, bool writing, Pc pc, const char* what);

// Checks an access to global memory by the running thread, or by a copy that it issues, against
// other CTAs of its launch and against grids of the stream that may still run (global_words.cpp).
// Whether such a check can find anything: of inputs it cannot, nor of a write to what nobody reads.
bool global_watched(const void* pointer, bool writing);
void grid_access(const void* pointer, size_t bytes, bool writing, Pc pc, const char* what);

}  // namespace kb::emu
