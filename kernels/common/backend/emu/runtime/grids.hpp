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
// The host has waited for all streams: what is launched from now on comes after what was before.
void host_waited();
// Whether that earlier grid is on another stream, and nothing orders the two.
bool on_other_stream(const Launch& launch, uint64_t serial);
void grid_completed(const Launch& launch, rt::Stream stream);
void cta_completed(Cta& cta);
// Whether the thread knows that one of its cluster has waited for the grids before.
bool knows_wait(const Thread& thread);

// An earlier grid that wrote a word or, for a write, read it after its trigger.
struct GridAccess {
  uint64_t serial = 0;
  bool wrote = false;
  std::string name;
  std::string buffer;  // with the place in it
  Pc pc = nullptr;
};
// Reports an access to what a grid on another stream accessed.
void report_streams(const GridAccess& last, bool writing, Pc pc, const char* what);
// Checks an access to what that grid of the stream accessed: reports it if it may still run.
bool check_grids(const GridAccess& last, bool writing, Pc pc, const char* what);

}  // namespace kb::emu
