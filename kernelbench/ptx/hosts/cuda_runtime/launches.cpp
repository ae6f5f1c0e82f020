// Launches, and what is known of kernels.
#include <algorithm>
#include <cstring>

#include "order.hpp"
#include "state.hpp"

extern "C" int kb_cudart_counted(int sms);  // device.cpp

namespace kb::cuda {

namespace {

unsigned count(dim3 of) {
  return of.x * of.y * of.z;
}

// Why the driver refuses it, with an error of its own; empty if it does not.
std::string misfit(const Kernel& kernel, const Form& form, cudaError_t* status) {
  if (count(form.cluster) > kernel.most_cluster) {
    *status = cudaErrorInvalidClusterSize;
    return std::to_string(count(form.cluster)) + " blocks in a cluster, of at most " +
           std::to_string(kernel.most_cluster) +
           (kernel.most_cluster > 8 ? ""
                                    : ", which cudaFuncSetAttribute raises "
                                      "(cudaFuncAttributeNonPortableClusterSizeAllowed)");
  }
  const unsigned threads = count(form.block);
  const size_t room = kernel.dynamic_limit - std::min(kernel.dynamic_limit, kernel.static_shared);
  if (threads > kernel.most_threads) {
    return std::to_string(threads) + " threads in a block, of at most " +
           std::to_string(kernel.most_threads);
  }
  if (form.shared > room) {
    return std::to_string(form.shared) + " bytes of dynamic shared memory, of at most " +
           std::to_string(room) +
           ", which cudaFuncSetAttribute raises (cudaFuncAttributeMaxDynamicSharedMemorySize)";
  }
  const bool has_size = count(form.grid) > 0 && threads > 0;
  if (has_size && form.grid.y <= 65535 && form.grid.z <= 65535) return "";
  return std::string("a grid or block ") +
         (has_size ? "of more than 65535 blocks along y or z" : "with an extent of 0");
}

// cudaFuncAttributeNonPortableClusterSizeAllowed, which old headers lack.
constexpr auto kNonPortableClusters = static_cast<cudaFuncAttribute>(14);

// Blocks of the clusters that a launch asks for.
unsigned cluster_of(const cudaLaunchConfig_t* config) {
  unsigned ctas = 1;
  for (unsigned at = 0; at < config->numAttrs; ++at) {
    const cudaLaunchAttribute& each = config->attrs[at];
    if (each.id != cudaLaunchAttributeClusterDimension) continue;
    ctas = each.val.clusterDim.x * each.val.clusterDim.y * each.val.clusterDim.z;
  }
  return std::max(1u, ctas);
}

// Whether the program has asked how many blocks an SM holds.
bool counted_blocks = false;

// CUDA programming guide, "Grid Synchronization": as many blocks as the SMs hold together. Of those
// it has been told of, a program that has asked for both numbers may launch no more.
bool resides(const Kernel& kernel, const Form& form) {
  if (form.cooperative && counted_blocks && kb_cudart_counted(1) != 0 &&
      count(form.grid) >
          static_cast<unsigned>(device.sms *
                                resident_blocks(kernel, count(form.block), form.shared))) {
    return false;
  }
  return !form.cooperative ||
         count(form.grid) <= resident(kernel.module, kernel.name.c_str(), count(form.block),
                                      form.shared, count(form.cluster));
}

// What the host reaches, too, of what arguments point to, or structures among them.
std::vector<Reach> reached(const Kernel& kernel, void** arguments) {
  std::vector<Reach> found;
  for (size_t at = 0; orders() && at < kernel.sizes.size(); ++at) {
    for (size_t word = 0; word + sizeof(void*) <= kernel.sizes[at]; word += sizeof(void*)) {
      void* pointer;
      std::memcpy(&pointer, static_cast<const char*>(arguments[at]) + word, sizeof pointer);
      const Range range = range_of(pointer);
      if (range.begin != nullptr) found.push_back({range.begin, range.bytes, true});
    }
  }
  return found;
}

}  // namespace

cudaError_t prepared(Work* work, What* what, Kernel* kernel, const Form& form, void** arguments,
                     int gpu) {
  if (kernel == nullptr) return launch_refused("a kernel", cudaErrorInvalidDeviceFunction);
  kernel = kernel_on(kernel, gpu);
  cudaError_t status = cudaErrorInvalidConfiguration;
  const std::string why = misfit(*kernel, form, &status);
  if (!why.empty()) return launch_refused(kernel->name, status, why);
  if (!resides(*kernel, form))
    return launch_refused(kernel->name, cudaErrorCooperativeLaunchTooLarge);
  const auto call =
      std::make_shared<KernelCall>(KernelCall{kernel, form, {}, {}, gpu, reached_by(gpu)});
  for (size_t at = 0; at < kernel->sizes.size(); ++at) {
    const auto* begin = static_cast<const char*>(arguments[at]);
    call->kept.emplace_back(begin, begin + kernel->sizes[at]);
  }
  for (auto& each : call->kept) call->values.push_back(each.data());
  *work = [call] {
    const Kernel& of = *call->kernel;
    const Form& with = call->form;
    const OnGpu scope(call->gpu, call->reached);
    const int status = launch_kernel(
        of.module, of.name.c_str(), &with.grid.x, &with.block.x, &with.cluster.x, with.shared,
        with.cooperative + 2 * with.programmatic + 4 * with.in_default, call->values.data());
    return status == 0 ? launch_children(of, call->gpu) : static_cast<cudaError_t>(status);
  };
  *what = {Kind::kLaunch, kernel->name, form.programmatic, reached(*kernel, arguments),
           false,         call};
  return cudaSuccess;
}

// CUDA programming guide, "Stream and Event Behavior": a launch fails in a stream that is not of
// the current device. With CUDA 13.0 it runs on the stream's (two H200).
cudaError_t launch(Kernel* kernel, const Form& form, void** arguments, cudaStream_t stream) {
  const int gpu = gpu_of(stream);
  if (CUDART_VERSION < 13000 && gpu != current_gpu()) {
    return launch_refused(kernel != nullptr ? kernel->name : "a kernel",
                          cudaErrorInvalidResourceHandle,
                          "in a stream" + words_of_gpu(gpu) + " while GPU " +
                              std::to_string(current_gpu()) + " is current");
  }
  Work work;
  What what;
  Form placed = form;
  placed.in_default = stream == nullptr || stream == cudaStreamLegacy;
  const cudaError_t status = prepared(&work, &what, kernel, placed, arguments, gpu);
  return status == cudaSuccess ? submit(stream, std::move(work), std::move(what)) : status;
}

cudaError_t launch_with(const cudaLaunchConfig_t& config, Kernel* kernel, void** arguments) {
  Form form{config.gridDim, config.blockDim, {1, 1, 1}, config.dynamicSmemBytes, false};
  cudaEvent_t begun = nullptr;
  for (unsigned at = 0; at < config.numAttrs; ++at) {
    const cudaLaunchAttribute& each = config.attrs[at];
    switch (each.id) {
      case cudaLaunchAttributeClusterDimension:
        form.cluster = {each.val.clusterDim.x, each.val.clusterDim.y, each.val.clusterDim.z};
        break;
      case cudaLaunchAttributeCooperative:
        form.cooperative = each.val.cooperative != 0;
        break;
      case cudaLaunchAttributeProgrammaticStreamSerialization:
        form.programmatic = each.val.programmaticStreamSerializationAllowed != 0;
        break;
      case cudaLaunchAttributeLaunchCompletionEvent:
        begun = each.val.launchCompletionEvent.event;
        break;
      // Without effect on what a launch computes: each runs to its end before the next.
      case cudaLaunchAttributeIgnore:
      case cudaLaunchAttributeAccessPolicyWindow:
      case cudaLaunchAttributeSynchronizationPolicy:
      case cudaLaunchAttributeClusterSchedulingPolicyPreference:
      case cudaLaunchAttributePriority:
      case cudaLaunchAttributeMemSyncDomain:
      case cudaLaunchAttributeMemSyncDomainMap:
      case cudaLaunchAttributePreferredSharedMemoryCarveout:
        break;
      default:
        return not_here("launch attribute " + std::to_string(each.id));
    }
  }
  // CUDA runtime API, cudaLaunchAttributeLaunchCompletionEvent: who waits for it knows that the
  // CTAs have begun, and nothing of what they do.
  const cudaError_t status = begun ? cudaEventRecord(begun, config.stream) : cudaSuccess;
  return status == cudaSuccess ? launch(kernel, form, arguments, config.stream) : status;
}

// As repeated_runs.py has it.
constexpr int kFewSms = 4;

int resident_blocks(const Kernel& kernel, int threads, size_t shared) {
  const bool room = threads > 0 && threads <= static_cast<int>(kernel.most_threads) &&
                    shared + kernel.static_shared <= static_cast<size_t>(device.shared_bytes);
  if (!room) return 0;
  // On a few SMs one each, so that persistent kernels go round.
  if (device.sms <= kFewSms) return 1;
  return static_cast<int>(resident(kernel.module, kernel.name.c_str(), threads, shared, 0));
}

}  // namespace kb::cuda

using namespace kb::cuda;

extern "C" {

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             size_t shared, cudaStream_t stream) {
  KB_CALL;
  return launch(kernel_of(function), {grid, block, {1, 1, 1}, shared, false}, arguments, stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block,
                                        void** arguments, size_t shared, cudaStream_t stream) {
  KB_CALL;
  return launch(kernel_of(function), {grid, block, {1, 1, 1}, shared, true}, arguments, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** arguments) {
  KB_CALL;
  return launch_with(*config, kernel_of(function), arguments);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  KB_CALL;
  return submit(stream, host_function([=] { function(data); }, captures(stream) ? nullptr : data),
                kHostFunction);
}

// ---- attributes --------------------------------------------------------------------------------

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  KB_CALL;
  Kernel* const kernel = kernel_of(function);
  if (kernel == nullptr) return remembered(cudaErrorInvalidDeviceFunction);
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value < 0 || value + static_cast<int>(kernel->static_shared) > device.shared_bytes) {
      return remembered(cudaErrorInvalidValue);
    }
    kernel->dynamic_limit =
        std::max(48u * 1024, static_cast<uint32_t>(value) + kernel->static_shared);
  }
  if (attribute == kNonPortableClusters) kernel->most_cluster = value != 0 ? 16 : 8;
  return cudaSuccess;
}
cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) {
  return cudaSuccess;
}
cudaError_t cudaFuncSetSharedMemConfig(const void*, cudaSharedMemConfig) {
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  KB_CALL;
  const Kernel* const kernel = kernel_of(function);
  if (kernel == nullptr) return remembered(cudaErrorInvalidDeviceFunction);
  std::memset(attributes, 0, sizeof *attributes);
  attributes->sharedSizeBytes = kernel->static_shared;
  attributes->maxThreadsPerBlock = static_cast<int>(kernel->most_threads);
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = device.arch;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(
      kernel->dynamic_limit - std::min(kernel->dynamic_limit, kernel->static_shared));
  return cudaSuccess;
}
cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* symbol) {
  Kernel* const kernel = kernel_of(symbol);
  if (kernel == nullptr) return remembered(cudaErrorInvalidDeviceFunction);
  *function = reinterpret_cast<cudaFunction_t>(kernel);
  return cudaSuccess;
}

// ---- occupancy ---------------------------------------------------------------------------------

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks,
                                                                   const void* function,
                                                                   int threads, size_t shared,
                                                                   unsigned) {
  KB_CALL;
  const Kernel* const kernel = kernel_of(function);
  if (kernel == nullptr) return remembered(cudaErrorInvalidDeviceFunction);
  *blocks = resident_blocks(*kernel, threads, shared);
  counted_blocks = true;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared,
                                                                0);
}
cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* function, int,
                                                      int) {
  KB_CALL;
  const Kernel* const kernel = kernel_of(function);
  if (kernel == nullptr) return remembered(cudaErrorInvalidDeviceFunction);
  *bytes = static_cast<size_t>(device.shared_bytes) - kernel->static_shared;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxPotentialClusterSize(int* size, const void* function,
                                                 const cudaLaunchConfig_t* config) {
  KB_CALL;
  const Kernel* const kernel = kernel_of(function);
  if (kernel == nullptr) return remembered(cudaErrorInvalidDeviceFunction);
  if (cluster_of(config) > kernel->most_cluster) return remembered(cudaErrorInvalidClusterSize);
  *size = static_cast<int>(kernel->most_cluster);
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* function,
                                           const cudaLaunchConfig_t* config) {
  KB_CALL;
  const Kernel* const kernel = kernel_of(function);
  if (kernel == nullptr) return remembered(cudaErrorInvalidDeviceFunction);
  const unsigned ctas = cluster_of(config);
  if (ctas > kernel->most_cluster) return remembered(cudaErrorInvalidClusterSize);
  *clusters = std::max(1, device.sms / static_cast<int>(ctas));
  return cudaSuccess;
}

}  // extern "C"
