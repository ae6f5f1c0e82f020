// As native, but a launch prepares the executor's state, waits for the kernel and says what went
// wrong. After a fault the CUDA context is lost, and with it the process's use of the GPU.
#pragma once

#include <mutex>
#include <vector>

#include "../sm90a/rt_common.inl"
#include "report.inl"

namespace kb::soft {

// A library has one state, so its launches take turns. Internal linkage: libraries of different
// builds in one process share nothing.
namespace {

struct Workspace {
  std::mutex mutex;
  int device = -1;
  uint32_t ctas = 0;
  Slab* slabs = nullptr;
  Allocations* allocations = nullptr;
  uint32_t* counters = nullptr;  // next cluster, failing
  Record* record = nullptr;      // page-locked: outlives the context
};
Workspace workspace;

void check(cudaError_t status, const char* call) {
  rt::detail::check(status, call);
}

template <typename T>
T* allocate_array(size_t count) {
  void* pointer = nullptr;
  check(cudaMalloc(&pointer, count * sizeof(T)), "cudaMalloc");
  return static_cast<T*>(pointer);
}

// Room for `ctas` CTAs. Another device gets its own; what the first had stays with it.
void make_room(uint32_t ctas) {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  Workspace& w = workspace;
  if (device != w.device) {
    w.slabs = nullptr;
    w.allocations = nullptr;
    w.ctas = 0;
    w.counters = allocate_array<uint32_t>(2);
    if (w.record == nullptr) {
      void* record = nullptr;
      check(cudaHostAlloc(&record, sizeof(Record), cudaHostAllocMapped | cudaHostAllocPortable),
            "cudaHostAlloc");
      w.record = static_cast<Record*>(record);
    }
    w.device = device;
  }
  if (ctas <= w.ctas) return;
  check(cudaFree(std::exchange(w.slabs, nullptr)), "cudaFree");
  check(cudaFree(std::exchange(w.allocations, nullptr)), "cudaFree");
  w.ctas = 0;
  w.slabs = allocate_array<Slab>(ctas);
  w.allocations = allocate_array<Allocations>(ctas);
  w.ctas = ctas;
}

// Sets the state up for `ctas` CTAs of the grid, in stream order.
void prepare(uint32_t ctas, const rt::LaunchConfig& config, cudaStream_t stream) {
  make_room(ctas);
  Workspace& w = workspace;
  *w.record = {};
  const uint32_t counters[2] = {ctas / config.cluster, 0};
  // All ones: tensor memory holds NaN until it is written.
  check(cudaMemsetAsync(w.slabs, 0xff, ctas * sizeof(Slab), stream), "cudaMemsetAsync");
  check(cudaMemsetAsync(w.allocations, 0, ctas * sizeof(Allocations), stream), "cudaMemsetAsync");
  check(cudaMemcpyAsync(w.counters, counters, sizeof counters, cudaMemcpyHostToDevice, stream),
        "cudaMemcpyAsync");
  State made = {};
  made.slabs = w.slabs;
  made.allocations = w.allocations;
  made.next_cluster = w.counters;
  made.failing = w.counters + 1;
  made.record = w.record;
  made.clusters = config.grid.x * config.grid.y * config.grid.z / config.cluster;
  made.grid = config.grid;
  check(cudaMemcpyToSymbolAsync(state, &made, sizeof made, 0, cudaMemcpyHostToDevice, stream),
        "cudaMemcpyToSymbolAsync");
}

// Waits for the launch; throws what went wrong.
void finish(uint32_t ctas, cudaStream_t stream) {
  const cudaError_t status = cudaStreamSynchronize(stream);
  if (status != cudaSuccess && workspace.record->fault != Fault::kNone) {
    throw rt::Error(describe(*workspace.record));
  }
  check(status, "cudaStreamSynchronize");
  std::vector<Allocations> left(ctas);
  check(cudaMemcpyAsync(left.data(), workspace.allocations, ctas * sizeof(Allocations),
                        cudaMemcpyDeviceToHost, stream),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  for (uint32_t cta = 0; cta < ctas; ++cta) {
    if (left[cta].taken != 0) {
      throw rt::Error(text("fault: CTA %u ended without deallocating its tensor memory", cta));
    }
  }
}

void check_not_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus capturing;
  check(cudaStreamIsCapturing(stream, &capturing), "cudaStreamIsCapturing");
  if (capturing != cudaStreamCaptureStatusNone) {
    throw rt::Error("launch: the soft executor waits for its kernels and cannot be captured");
  }
}

// Clusters of the launch that the GPU holds at once.
uint32_t resident_clusters(const void* kernel, const rt::LaunchConfig& config,
                           const cudaLaunchConfig_t& plan) {
  int count = 0;
  if (config.cluster > 1) {
    check(cudaOccupancyMaxActiveClusters(&count, kernel, &plan), "cudaOccupancyMaxActiveClusters");
  } else {
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
              &count, kernel, static_cast<int>(config.threads), config.shared_bytes),
          "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    count *= rt::sm_count();
  }
  return static_cast<uint32_t>(std::max(count, 1));
}

void launch(const void* kernel, const rt::LaunchConfig& config, void** arguments) {
  const std::lock_guard turn(workspace.mutex);
  const cudaStream_t stream = rt::detail::cuda_stream(config.stream);
  check_not_capturing(stream);
  rt::detail::LaunchPlan plan(kernel, config);
  if (config.launch_control) {
    if (config.grid.y != 1 || config.grid.z != 1) {
      throw rt::Error("launch: launch control takes a grid along x");
    }
    const uint32_t resident = resident_clusters(kernel, config, plan.config);
    plan.config.gridDim.x = std::min(config.grid.x, resident * config.cluster);
  }
  const dim3 grid = plan.config.gridDim;
  const uint32_t ctas = grid.x * grid.y * grid.z;
  prepare(ctas, config, stream);
  plan.launch(kernel, arguments);
  finish(ctas, stream);
}

}  // namespace

}  // namespace kb::soft

namespace kb::rt {

namespace detail {

template <typename... Values>
void launch_values(const void* kernel, const LaunchConfig& config, Values... values) {
  void* pointers[] = {static_cast<void*>(&values)..., nullptr};
  soft::launch(kernel, config, pointers);
}

}  // namespace detail

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchConfig& config, Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "one argument for each parameter");
  detail::launch_values<Parameters...>(reinterpret_cast<const void*>(kernel), config,
                                       static_cast<Arguments&&>(arguments)...);
}

}  // namespace kb::rt
