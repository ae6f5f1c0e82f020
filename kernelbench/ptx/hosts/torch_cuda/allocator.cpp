// While it is asked for, torch's tensors are memory of the GPU that the CUDA runtime here stands in
// for: their bounds are known, and they begin with NaN.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstddef>
#include <cstring>

// Of the CUDA runtime that stands in (cuda_runtime/memory.cpp).
extern "C" void* kb_cudart_allocate(size_t bytes);
extern "C" void kb_cudart_release(void* address);

namespace {

class OnEmulatedGpu final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const address = bytes != 0 ? kb_cudart_allocate(bytes) : nullptr;
    return {address, address, &kb_cudart_release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &kb_cudart_release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

// For ever: tensors are freed when the process ends.
OnEmulatedGpu& allocator = *new OnEmulatedGpu;
// Torch keeps the one of the highest priority.
constexpr uint8_t kPriority = 255;

}  // namespace

// From now on, or with 0 no more.
extern "C" void kb_torch_tensors_on_gpu(int on) {
  static c10::Allocator* const before = c10::GetCPUAllocator();
  c10::SetCPUAllocator(on != 0 ? &allocator : before, kPriority);
}
