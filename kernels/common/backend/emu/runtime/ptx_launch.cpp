// Launches of translated PTX: by themselves, or in place of a kernel of a step's library.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "api_core.hpp"
#include "api_ptx.hpp"
#include "core.hpp"
#include "operations.hpp"
#include "rt.cuh"
#include "runner.hpp"

namespace kb::emu {

namespace {

std::unordered_map<const void*, TranslatedKernel> translations;
BlockExtent extent = {};
const void* running = nullptr;
const std::byte* parameters_begin = nullptr;
const std::byte* parameters_end = nullptr;
uint32_t words_of_grid[2];
bool has_words = false;
std::atomic<bool> asked_for_words = false;

struct Freed {
  void operator()(void* memory) const { std::free(memory); }
};

}  // namespace

// PTX: .entry (11.3): the one that stands for a kernel of a step.
TranslatedKernel translation_of(const void* kernel) {
  const auto found = translations.find(kernel);
  return found != translations.end() ? found->second : nullptr;
}

// PTX: tcgen05.fence (9.7.16.6) is what compilers leave out; there the checker keeps a second
// clock.
bool runs_ptx() {
  return extent.x != 0 || !translations.empty();
}

const void* kernel_running() {
  return running;
}

const void* translated_code() {
  return extent.x != 0 ? running : nullptr;
}

// PTX: .param of a kernel (5.1.6): what every launch of PTX may read beside its buffers.
bool in_no_parameter(const void* address) {
  return extent.x != 0 && (address < parameters_begin || address >= parameters_end);
}

// PTX: %ntid (10). Steps launch CTAs in one dimension.
BlockExtent block_extent() {
  if (extent.x != 0) return extent;
  return {static_cast<uint32_t>(self().cta->threads.size()), 1, 1};
}

// PTX: %envreg<32> (10).
// Assumption: %envreg1 and %envreg2, which PTX leaves to the driver, have the address of a
// workspace where cooperative groups synchronize the grid: so its headers use them.
uint32_t* grid_words() {
  if (!has_words) asked_for_words = true;
  return has_words ? words_of_grid : nullptr;
}

// PTX: %envreg<32> (10).
bool lacks_grid_words() {
  return asked_for_words;
}

// PTX: .entry (11.3), with a copy of its parameters for the whole grid (6.3).
int launch_translated(TranslatedKernel kernel, const uint32_t (&grid)[3],
                      const uint32_t (&block)[3], const uint32_t (&cluster)[3],
                      uint32_t shared_bytes, bool cooperative, const void* parameters, size_t bytes,
                      char* message, size_t size) {
  constexpr size_t kAlignment = 128;  // of a tensor map
  const size_t rounded = (bytes / kAlignment + 1) * kAlignment;
  const std::unique_ptr<void, Freed> copy(std::aligned_alloc(kAlignment, rounded));
  std::memcpy(copy.get(), parameters, bytes);
  parameters_begin = static_cast<const std::byte*>(copy.get());
  parameters_end = parameters_begin + bytes;
  extent = {block[0], block[1], block[2]};
  running = reinterpret_cast<const void*>(kernel);
  words_of_grid[0] = words_of_grid[1] = 0;
  has_words = cooperative;
  asked_for_words = false;
  forget_device_launches();
  if (cooperative) {
    register_region(words_of_grid, sizeof words_of_grid, "the grid's barrier", true, false);
  }
  const CtaIndex shape = {cluster[0], cluster[1], cluster[2]};
  int status = 0;
  try {
    launch(
        {.grid = {grid[0], grid[1], grid[2]},
         .threads = block[0] * block[1] * block[2],
         .shared_bytes = shared_bytes,
         .cluster = cluster[0] * cluster[1] * cluster[2],
         .cooperative = cooperative},
        [kernel, &copy] { kernel(copy.get()); }, &shape);
  } catch (const rt::Error& error) {
    std::snprintf(message, size, "%s", error.what());
    status = 1;
  }
  extent = {};
  return status;
}

}  // namespace kb::emu

// Whether what kernels print is left out (ptx_frontend/calls.hpp).
extern "C" __attribute__((visibility("default"))) uint32_t kb_emu_silent = 0;

// What the loader calls; see kernelbench/ptx/step_kernels.py.
extern "C" __attribute__((visibility("default"))) void kb_emu_translate(
    const void* kernel, kb::emu::TranslatedKernel translation) {
  if (translation == nullptr) {
    kb::emu::translations.erase(kernel);
  } else {
    kb::emu::translations[kernel] = translation;
  }
}
