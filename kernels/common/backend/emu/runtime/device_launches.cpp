// Launches by kernels (CUDA C++ Programming Guide, "CUDA Dynamic Parallelism"). They are kept, for
// the program's runtime to make them once the kernel has ended: a kernel cannot wait for what it
// launches. Which order they have among each other that runtime says (cuda_runtime/children.cpp).
// They come after what the launching thread knows: the launch releases that by a word of its own.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "api_ptx.hpp"
#include "core.hpp"
#include "operations.hpp"
#include "runner.hpp"

namespace kb::emu {

namespace {

constexpr size_t kParameterBytes = 4096;  // that such a launch can have
// CUDA runtime: the handle of each thread's own stream, and numbers beyond those of streams.
constexpr uint64_t kPerThread = 2, kOfThreads = uint64_t{1} << 32, kCreated = uint64_t{1} << 33;
constexpr uint32_t kNonBlocking = 1;
constexpr uint32_t kInvalidValue = 1;  // cudaErrorInvalidValue

// As kernelbench/ptx/hosts/cuda_runtime/children.cpp reads it.
struct DeviceLaunch {
  const char* kernel;
  BlockExtent grid, block;
  uint32_t shared_bytes;
  uint64_t stream;
  uint64_t cta;
  const void* word;
  alignas(16) std::byte parameters[kParameterBytes];
};

std::mutex guard;
std::vector<DeviceLaunch> launches;  // of the launch that runs, or that has run last
std::atomic<uint64_t> streams_created = 0;
// Never accessed: their addresses stand for launches. After so many they stand for others, too.
std::byte words[1 << 20];
size_t words_taken = 0;

// The far end of its stack is the thread's own, as its local memory is.
DeviceLaunch* prepared() {
  return reinterpret_cast<DeviceLaunch*>(self().fiber->stack);
}

}  // namespace

void forget_device_launches() {
  launches.clear();
}

bool has_device_launches() {
  return !launches.empty();
}

// PTX: call (9.7.12.5) of cudaGetParameterBufferV2, which CUDA's device runtime provides.
void* parameter_buffer(const char* kernel, const BlockExtent& grid, const BlockExtent& block,
                       uint32_t shared_bytes) {
  DeviceLaunch& made = *prepared();
  made.kernel = kernel;
  made.grid = grid;
  made.block = block;
  made.shared_bytes = shared_bytes;
  return made.parameters;
}

// PTX: call (9.7.12.5) of cudaLaunchDeviceV2: a cudaError_t.
uint32_t launch_device(const void* parameters, uint64_t stream) {
  DeviceLaunch& made = *prepared();
  if (parameters != made.parameters) return kInvalidValue;
  const CtaIndex at = cta_index(), count = cta_count();
  made.cta = at.x + uint64_t{count.x} * (at.y + uint64_t{count.y} * at.z);
  made.stream = stream == kPerThread ? kOfThreads + thread_index() : stream;
  {
    const std::lock_guard lock(guard);
    made.word = &words[words_taken++ % sizeof words];
    launches.push_back(made);
  }
  counter_release({static_cast<const uint32_t*>(made.word), nullptr}, true, Scope::kGpu);
  return 0;
}

// PTX: call (9.7.12.5) of cudaStreamCreateWithFlags: 0 for flags that a kernel may not give.
uint64_t create_stream(uint32_t flags) {
  return flags == kNonBlocking ? kCreated + streams_created++ : 0;
}

}  // namespace kb::emu

// What the last launch has launched: CTA by CTA, each of them in its order.
extern "C" __attribute__((visibility("default"))) uint64_t
kb_emu_device_launches(const void** first) {
  using namespace kb::emu;
  std::stable_sort(launches.begin(), launches.end(),
                   [](const auto& one, const auto& other) { return one.cta < other.cta; });
  *first = launches.data();
  return launches.size();
}
