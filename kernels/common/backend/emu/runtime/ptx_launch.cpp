// Launches of translated PTX: by themselves, or in place of a kernel of a step's library.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "api_core.hpp"
#include "api_ptx.hpp"
#include "core.hpp"
#include "launch.hpp"
#include "operations.hpp"
#include "rt.cuh"
#include "runner.hpp"

namespace kb::emu {

namespace {

std::unordered_map<const void*, TranslatedKernel> translations;
bool runs_translated = false;
const void* running = nullptr;
std::atomic<bool> asked_for_words = false;

// A kernel with its parameters, and the two words of a cooperative grid.
class Given {
 public:
  Given(TranslatedKernel kernel, const rt::LaunchConfig& config, const CtaIndex& extent,
        const CtaIndex& block, const void* parameters, size_t bytes)
      : bytes_(bytes) {
    constexpr size_t kAlignment = 128;  // of a tensor map
    const size_t rounded = (bytes / kAlignment + 1) * kAlignment;
    copy_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
    std::memcpy(copy_.get(), parameters, bytes);
    grid = {.config = config,
            .body = [kernel, copy = copy_.get()] { kernel(copy); },
            .extent = extent,
            .block = block,
            .kernel = reinterpret_cast<const void*>(kernel),
            .operation = current_operation()};
  }
  bool has(const std::byte* address) const {
    return address >= copy_.get() && address < copy_.get() + bytes_;
  }
  uint32_t* words() { return grid.config.cooperative ? words_ : nullptr; }
  void begin() {
    words_[0] = words_[1] = 0;
    if (words() == nullptr) return;
    register_region(words_, sizeof words_, "the grid's barrier", true, false);
  }

  TranslatedGrid grid;

 private:
  struct Freed {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Freed> copy_;
  size_t bytes_;
  uint32_t words_[2] = {};
};

Given* launched = nullptr;
std::vector<std::unique_ptr<Given>> beside;  // grids that run beside what is launched

Given& given() {
  const Launch& launch = *self().cta->cluster->launch;
  const auto& grids = launch.whole->beside;
  const auto at = std::find_if(grids.begin(), grids.end(),
                               [&launch](const auto& each) { return each.get() == &launch; });
  return at == grids.end() ? *launched : *beside[static_cast<size_t>(at - grids.begin())];
}

rt::LaunchConfig config_of(const uint32_t* grid, const uint32_t* block, const uint32_t* cluster,
                           uint32_t shared_bytes, bool cooperative) {
  return {.grid = {grid[0], grid[1], grid[2]},
          .threads = block[0] * block[1] * block[2],
          .shared_bytes = shared_bytes,
          .cluster = cluster[0] * cluster[1] * cluster[2],
          .cooperative = cooperative};
}

}  // namespace

// PTX: .entry (11.3): the one that stands for a kernel of a step.
TranslatedKernel translation_of(const void* kernel) {
  const auto found = translations.find(kernel);
  return found != translations.end() ? found->second : nullptr;
}

// PTX: tcgen05.fence (9.7.16.6) is what compilers leave out; there the checker keeps a second
// clock.
bool runs_ptx() {
  return runs_translated || !translations.empty();
}

const void* kernel_running() {
  return current_thread != nullptr ? current_thread->cta->cluster->launch->kernel : running;
}

const void* translated_code() {
  return runs_translated ? running : nullptr;
}

// PTX: .param of a kernel (5.1.6): what every launch of PTX may read beside its buffers.
bool in_no_parameter(const void* address) {
  const auto* byte = static_cast<const std::byte*>(address);
  return runs_translated && !launched->has(byte) &&
         std::none_of(beside.begin(), beside.end(),
                      [byte](const auto& each) { return each->has(byte); });
}

// PTX: %ntid (10). Steps launch CTAs in one dimension.
BlockExtent block_extent() {
  const CtaIndex& block = self().cta->cluster->launch->block;
  if (block.x != 0) return {block.x, block.y, block.z};
  return {static_cast<uint32_t>(self().cta->threads.size()), 1, 1};
}

// PTX: %envreg<32> (10).
// Assumption: %envreg1 and %envreg2, which PTX leaves to the driver, have the address of a
// workspace where cooperative groups synchronize the grid: so its headers use them.
uint32_t* grid_words() {
  uint32_t* const words = given().words();
  if (words == nullptr) asked_for_words = true;
  return words;
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
  Given made(kernel, config_of(grid, block, cluster, shared_bytes, cooperative),
             {cluster[0], cluster[1], cluster[2]}, {block[0], block[1], block[2]}, parameters,
             bytes);
  launched = &made;
  runs_translated = true;
  running = made.grid.kernel;
  asked_for_words = false;
  forget_device_launches();
  made.begin();
  std::vector<TranslatedGrid> others;
  for (const auto& each : beside) {
    each->begin();
    others.push_back(each->grid);
  }
  int status = 0;
  try {
    launch(made.grid, others);
  } catch (const rt::Error& error) {
    std::snprintf(message, size, "%s", error.what());
    status = 1;
  }
  runs_translated = false;
  return status;
}

}  // namespace kb::emu

// Whether what kernels print is left out (ptx_frontend/calls.hpp).
extern "C" __attribute__((visibility("default"))) uint32_t kb_emu_silent = 0;

// A kernel of the operation of a program that begins now: its CTAs run beside those of what is
// launched from now on; null: none do.
extern "C" __attribute__((visibility("default"))) void kb_emu_beside(
    kb::emu::TranslatedKernel kernel, const uint32_t* grid, const uint32_t* block,
    const uint32_t* cluster, uint32_t shared_bytes, int cooperative, const void* parameters,
    uint64_t bytes) {
  using namespace kb::emu;
  if (kernel == nullptr) return beside.clear();
  beside.push_back(std::make_unique<Given>(
      kernel, config_of(grid, block, cluster, shared_bytes, cooperative != 0),
      kb::CtaIndex{cluster[0], cluster[1], cluster[2]}, kb::CtaIndex{block[0], block[1], block[2]},
      parameters, bytes));
}

// What the loader calls; see kernelbench/ptx/step_kernels.py.
extern "C" __attribute__((visibility("default"))) void kb_emu_translate(
    const void* kernel, kb::emu::TranslatedKernel translation) {
  if (translation == nullptr) {
    kb::emu::translations.erase(kernel);
  } else {
    kb::emu::translations[kernel] = translation;
  }
}
