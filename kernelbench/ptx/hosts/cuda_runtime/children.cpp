// What kernels launch: once the kernel has ended, each an operation by itself, and all of them
// before what comes behind the kernel (CUDA C++ Programming Guide, "CUDA Dynamic Parallelism").
#include <map>
#include <utility>
#include <vector>

#include "order.hpp"
#include "state.hpp"

namespace kb::cuda {

namespace {

// As the emulator's device_launches.cpp writes it.
struct DeviceLaunch {
  const char* kernel;
  uint32_t grid[3], block[3];
  uint32_t shared_bytes;
  uint64_t stream;
  uint64_t cta;
  const void* word;
  alignas(16) char parameters[4096];
};

constexpr uint64_t kTail = 3, kFireAndForget = 4, kCreated = uint64_t{1} << 33;

dim3 extent(const uint32_t (&of)[3]) {
  return {of[0], of[1], of[2]};
}

// Launches into one stream come one after another. Each CTA has a default stream of its own; a
// stream that a kernel has made is the grid's.
std::pair<uint64_t, uint64_t> line_of(const DeviceLaunch& launch, size_t at) {
  if (launch.stream == kFireAndForget) return {kFireAndForget, at};
  if (launch.stream == kTail || launch.stream >= kCreated) return {launch.stream, 0};
  return {launch.stream, launch.cta};
}

}  // namespace

cudaError_t launch_children(const Kernel& parent, int gpu) {
  const void* first = nullptr;
  const size_t count = device_launches(&first);
  if (count == 0) return cudaSuccess;
  const auto* const begin = static_cast<const DeviceLaunch*>(first);
  std::vector<DeviceLaunch> made(begin, begin + count);  // each has launches of its own
  std::vector<Child> children;
  for (size_t at = 0; at < made.size(); ++at) {
    DeviceLaunch& each = made[at];
    auto& kernels = modules[parent.module].kernels;
    const auto found = kernels.find(each.kernel);
    Kernel* const kernel = found != kernels.end() ? &found->second : nullptr;
    std::vector<void*> arguments;
    if (kernel != nullptr) {
      for (const uint32_t offset : kernel->offsets) arguments.push_back(each.parameters + offset);
    }
    Child child;
    child.line = line_of(each, at);
    child.tail = each.stream == kTail;
    child.word = each.word;
    const Form form{extent(each.grid), extent(each.block), {1, 1, 1}, each.shared_bytes};
    if (prepared(&child.work, &child.what, kernel, form, arguments.data(), gpu) == cudaSuccess) {
      children.push_back(std::move(child));
    }
  }
  return do_within_running(children, gpu, " launched by " + parent.name);
}

}  // namespace kb::cuda
