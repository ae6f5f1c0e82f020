// What kernelbench.ptx makes C++ of PTX with.
#pragma once

#include "calls.hpp"
#include "textures.hpp"
#include "wmma.hpp"

namespace px {

using emu::launch_translated;

}  // namespace px

// A kernel's C function, which a launch names, and which stands for a step's own kernel.
#define KB_PTX_EXPORT(name)                                                       \
  extern "C" __attribute__((visibility("default"))) void name(void* parameters) { \
    name##_body(static_cast<px::Byte*>(parameters));                              \
  }

// A variable of the module, as memory of the GPU.
#define KB_PTX_VARIABLE(name, variable)                            \
  extern "C" __attribute__((visibility("default"))) void* name() { \
    return variable;                                               \
  }

// What has the variables of another library for its own.
#define KB_PTX_BIND \
  extern "C" __attribute__((visibility("default"))) void kb_ptx_bind(px::Byte* const* to)

// A word that the loader may set.
#define KB_PTX_WORD(name) extern "C" __attribute__((visibility("default"))) uint32_t name = 0;

// What the loader calls; see kernelbench/ptx/library.py.
extern "C" __attribute__((visibility("default"), used)) inline int kb_ptx_launch(
    kb::emu::TranslatedKernel kernel, const uint32_t* grid, const uint32_t* block,
    const uint32_t* cluster, uint32_t shared_bytes, int cooperative, const void* parameters,
    size_t bytes, char* message, size_t size) {
  return kb::emu::launch_translated(kernel, {grid[0], grid[1], grid[2]},
                                    {block[0], block[1], block[2]},
                                    {cluster[0], cluster[1], cluster[2]}, shared_bytes,
                                    cooperative != 0, parameters, bytes, message, size);
}
