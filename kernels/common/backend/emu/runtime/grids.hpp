// Which grids of a stream may overlap (grids.cpp), and what earlier ones did to global memory
// (memory.cpp).
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

// The latest of the grids before `serial` that wrote any of the bytes or, if `writing`, read any of
// them after its trigger. serial 0: none.
struct GridAccess {
  uint64_t serial = 0;
  bool wrote = false;
  std::string buffer;
};
GridAccess last_grid_access(const void* pointer, size_t bytes, bool writing, uint64_t serial);
void note_read(const void* pointer, size_t bytes, uint64_t serial);

// Checks an access by the running thread, or by a copy that it issues, against grids of the stream
// that may still run.
void grid_access(const void* pointer, size_t bytes, bool writing, Pc pc, const char* what);

}  // namespace kb::emu
