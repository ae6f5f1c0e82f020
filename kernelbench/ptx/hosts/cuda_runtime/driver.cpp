// Functions of the driver: tensor maps, modules of PTX, launches, streams (driver_memory.cpp has
// memory).
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <type_traits>

#include "order.hpp"
#include "state.hpp"

namespace kb::cuda {

namespace {

// The emulator's encoder (tensormap.cpp).
using Encode = int (*)(void* map, uint32_t element, uint32_t rank, void* address,
                       const uint64_t* dims, const uint64_t* strides, const uint32_t* box,
                       const int* lower, const int* upper, const uint32_t* element_strides,
                       uint32_t interleave, uint32_t swizzle, uint32_t fill, char* message,
                       size_t size);
constexpr size_t kMessageBytes = 256;
// PTX: tensormap.replace's .elemtype, by CUtensorMapDataType; the emulator's. -1: not there.
constexpr int kElementTypes[] = {0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 8, 11, 12, 13};

CUresult loaded(void** module, const char* text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  constexpr unsigned char kElf[] = {0x7f, 'E', 'L', 'F'};
  constexpr unsigned char kFatbin[] = {0x50, 0xed, 0x55, 0xba};
  if (std::memcmp(text, kElf, 4) == 0 || std::memcmp(text, kFatbin, 4) == 0) {
    return result(not_here("a module of machine code"));
  }
  const int number = load_ptx(text);
  if (number < 0) return CUDA_ERROR_INVALID_PTX;
  *module = &modules[number];
  return CUDA_SUCCESS;
}

CUresult loaded_from(void** module, const char* name) {
  std::ifstream file(name, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return loaded(module, text.c_str());
}

// CUDA driver API, CUstreamWriteValue_flags: by default a fence comes before the write.
template <typename Value>
CUresult write_word(CUstream stream, CUdeviceptr address, Value value, unsigned flags) {
  void* const word = reinterpret_cast<void*>(address);
  What what = copy_of(nullptr, 0, word, sizeof value);
  what.word = word;
  what.value = value;
  const bool fences = (flags & CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) == 0;
  const auto work = [=] {
    const Word here{word, sizeof value};
    const uint64_t before = here.now();
    order_at_word(nullptr);
    const cudaError_t status = copy(word, &value, sizeof value);
    word_written(here, before, fences);
    if (fences) order_at_word(word);
    return status;
  };
  return result(submit(stream, work, std::move(what)));
}
template <typename Value>
CUresult wait_for_value(CUstream stream, CUdeviceptr address, Value value, unsigned flags) {
  const auto is_right = [=](uint64_t now) {
    const auto found = static_cast<Value>(now);
    switch (flags & 3) {
      case CU_STREAM_WAIT_VALUE_GEQ:
        return static_cast<std::make_signed_t<Value>>(found - value) >= 0;
      case CU_STREAM_WAIT_VALUE_EQ:
        return found == value;
      case CU_STREAM_WAIT_VALUE_AND:
        return (found & value) != 0;
      default:
        return static_cast<Value>(~(found | value)) != 0;
    }
  };
  const Word word{reinterpret_cast<const void*>(address), sizeof value};
  const auto work = [=, pc = call_site()] { return wait_for_word(word, is_right, pc); };
  What what;
  what.kind = Kind::kTransfer;
  what.ready = [=] { return is_right(word.now()); };
  what.waits_at = call_site();
  return result(submit(stream, work, std::move(what)));
}

CUresult found_kernel(void** kernel, void* module, const char* name) {
  auto& kernels = static_cast<Module*>(module)->kernels;
  const auto found = kernels.find(name);
  if (found == kernels.end()) return CUDA_ERROR_NOT_FOUND;
  *kernel = &found->second;
  return CUDA_SUCCESS;
}

CUresult found_variable(CUdeviceptr* address, size_t* bytes, void* module, const char* name) {
  const auto& variables = static_cast<Module*>(module)->variables;
  const auto found = variables.find(name);
  if (found == variables.end()) return CUDA_ERROR_NOT_FOUND;
  if (address != nullptr) *address = reinterpret_cast<CUdeviceptr>(found->second.address);
  if (bytes != nullptr) *bytes = found->second.bytes;
  return CUDA_SUCCESS;
}

// Arguments that come as one block of memory.
std::vector<void*> from_block(const Kernel& kernel, void** extra) {
  char* block = nullptr;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) block = static_cast<char*>(extra[1]);
  }
  std::vector<void*> arguments;
  for (const uint32_t offset : kernel.offsets) arguments.push_back(block + offset);
  return arguments;
}

// The newest version of a function of the driver that is here.
void* driver_function(const std::string& name) {
  for (const char* version : {"_v4", "_v3", "_v2", ""}) {
    if (void* const found = own_function((name + version).c_str())) return found;
  }
  not_here(name);
  return nullptr;
}

char contexts[kMostGpus];
// CUDA driver API, context management: the thread's, below the current one.
thread_local std::vector<int> below;

CUresult pushed(CUcontext context) {
  const int gpu = gpu_of_context(context);
  if (gpu < 0) return CUDA_ERROR_INVALID_CONTEXT;
  below.push_back(current_gpu());
  return result(cudaSetDevice(gpu));
}

CUresult made(CUcontext* context, CUdevice gpu) {
  if (!has_gpu(gpu)) return CUDA_ERROR_INVALID_DEVICE;
  *context = context_of(gpu);
  return pushed(*context);
}

cudaError_t entry_point(const char* symbol, void** function,
                        cudaDriverEntryPointQueryResult* status) {
  *function = driver_function(symbol);
  if (status != nullptr) {
    *status = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  }
  return cudaSuccess;
}

// A map for tiles or, with corners, for im2col.
CUresult encoded(const char* what, CUtensorMap* map, CUtensorMapDataType element, cuuint32_t rank,
                 void* address, const cuuint64_t* dims, const cuuint64_t* strides,
                 const cuuint32_t* box, const int* lower, const int* upper,
                 const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                 CUtensorMapSwizzle swizzle, CUtensorMapFloatOOBfill fill) {
  static const auto encode = reinterpret_cast<Encode>(dlsym(RTLD_DEFAULT, "kb_emu_encode_map"));
  const auto type = static_cast<size_t>(element);
  const bool known = type < std::size(kElementTypes) && kElementTypes[type] >= 0 &&
                     interleave == CU_TENSOR_MAP_INTERLEAVE_NONE &&
                     swizzle <= CU_TENSOR_MAP_SWIZZLE_128B;
  if (!known) {
    return result(not_here(std::string(what) + " of element type " + std::to_string(element) +
                           ", interleave " + std::to_string(interleave) + ", swizzle " +
                           std::to_string(swizzle)));
  }
  char message[kMessageBytes];
  const auto taken = static_cast<uint32_t>(kElementTypes[type]);
  if (encode(map, taken, rank, address, dims, strides, box, lower, upper, element_strides,
             interleave, swizzle, fill, message, sizeof message) == 0) {
    return CUDA_SUCCESS;
  }
  std::fprintf(stderr, "%s: %s\n", what, message);
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUcontext context_of(int gpu) {
  return reinterpret_cast<CUcontext>(&contexts[gpu]);
}

int gpu_of_context(CUcontext context) {
  for (int gpu = 0; gpu < device.count; ++gpu) {
    if (context_of(gpu) == context) return gpu;
  }
  return -1;
}

}  // namespace kb::cuda

using namespace kb::cuda;

extern "C" {

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* status) {
  return entry_point(symbol, function, status);
}
#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  return entry_point(symbol, function, status);
}
#endif
CUresult cuGetProcAddress(const char* symbol, void** function, int, cuuint64_t,
                          CUdriverProcAddressQueryResult* status) {
  *function = driver_function(symbol);
  if (status != nullptr) {
    *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

// ---- tensor maps -------------------------------------------------------------------------------

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType element, cuuint32_t rank,
                                void* address, const cuuint64_t* dims, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* element_strides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  return encoded("cuTensorMapEncodeTiled", map, element, rank, address, dims, strides, box, nullptr,
                 nullptr, element_strides, interleave, swizzle, fill);
}
CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType element, cuuint32_t rank,
                                 void* address, const cuuint64_t* dims, const cuuint64_t* strides,
                                 const int* lower, const int* upper, cuuint32_t channels,
                                 cuuint32_t pixels, const cuuint32_t* element_strides,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  const cuuint32_t box[] = {channels, pixels};
  return encoded("cuTensorMapEncodeIm2col", map, element, rank, address, dims, strides, box, lower,
                 upper, element_strides, interleave, swizzle, fill);
}

// ---- modules and launches ----------------------------------------------------------------------

CUresult cuModuleLoad(CUmodule* module, const char* name) {
  return loaded_from(reinterpret_cast<void**>(module), name);
}
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return loaded(reinterpret_cast<void**>(module), static_cast<const char*>(image));
}
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  return cuModuleLoadData(module, image);
}
CUresult cuModuleUnload(CUmodule) {
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return found_kernel(reinterpret_cast<void**>(function), module, name);
}
CUresult cuModuleGetGlobal(CUdeviceptr* address, size_t* bytes, CUmodule module, const char* name) {
  return found_variable(address, bytes, module, name);
}
CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  return loaded(reinterpret_cast<void**>(library), static_cast<const char*>(code));
}
CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* name, CUjit_option*, void**,
                               unsigned, CUlibraryOption*, void**, unsigned) {
  return loaded_from(reinterpret_cast<void**>(library), name);
}
CUresult cuLibraryUnload(CUlibrary) {
  return CUDA_SUCCESS;
}
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  return found_kernel(reinterpret_cast<void**>(kernel), library, name);
}
CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  cudaFuncAttributes found;
  const cudaError_t status = cudaFuncGetAttributes(&found, function);
  if (status != cudaSuccess) return result(status);
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = found.maxThreadsPerBlock;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(found.sharedSizeBytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = found.numRegs;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = found.ptxVersion;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = found.maxDynamicSharedSizeBytes;
      return CUDA_SUCCESS;
    default:
      return result(not_here("function attribute " + std::to_string(attribute)));
  }
}
CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) {
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                     size_t shared) {
  return result(cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared));
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  return result(cudaFuncSetAttribute(function, static_cast<cudaFuncAttribute>(attribute), value));
}
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream stream, void** arguments, void** extra) {
  KB_CALL;
  Kernel* const kernel = kernel_of(function);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<void*> block;
  if (extra != nullptr) block = from_block(*kernel, extra);
  const Form form{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, {1, 1, 1}, shared, false};
  return result(launch(kernel, form, extra != nullptr ? block.data() : arguments, stream));
}
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                   unsigned grid_z, unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned shared, CUstream stream,
                                   void** arguments) {
  KB_CALL;
  const Form form{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, {1, 1, 1}, shared, true};
  return result(launch(kernel_of(function), form, arguments, stream));
}
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  KB_CALL;
  return result(cudaLaunchHostFunc(stream, function, data));
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments,
                          void** extra) {
  KB_CALL;
  Kernel* const kernel = kernel_of(function);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<void*> block;
  if (extra != nullptr) block = from_block(*kernel, extra);
  // The attributes' layout is the runtime's.
  static_assert(sizeof(CUlaunchAttribute) == sizeof(cudaLaunchAttribute));
  cudaLaunchConfig_t same = {};
  same.gridDim = {config->gridDimX, config->gridDimY, config->gridDimZ};
  same.blockDim = {config->blockDimX, config->blockDimY, config->blockDimZ};
  same.dynamicSmemBytes = config->sharedMemBytes;
  same.stream = config->hStream;
  same.attrs = reinterpret_cast<cudaLaunchAttribute*>(config->attrs);
  same.numAttrs = config->numAttrs;
  return result(launch_with(same, kernel, extra != nullptr ? block.data() : arguments));
}

// ---- the device --------------------------------------------------------------------------------

CUresult cuInit(unsigned) {
  return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int* version) {
  return result(cudaDriverGetVersion(version));
}
CUresult cuDeviceGet(CUdevice* number, int ordinal) {
  *number = ordinal;
  return has_gpu(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceGetCount(int* count) {
  return result(cudaGetDeviceCount(count));
}
CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  std::snprintf(name, static_cast<size_t>(length), "emulated sm_%d", device.arch);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  return result(device_attribute(value, attribute));
}
CUresult cuDeviceTotalMem(size_t* bytes, CUdevice) {
  size_t free;
  return result(cudaMemGetInfo(&free, bytes));
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice gpu) {
  if (!has_gpu(gpu)) return CUDA_ERROR_INVALID_DEVICE;
  *context = context_of(gpu);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) {
  return CUDA_SUCCESS;
}
#if CUDA_VERSION >= 13000
CUresult cuCtxCreate(CUcontext* context, CUctxCreateParams*, unsigned, CUdevice gpu) {
  return made(context, gpu);
}
#else
CUresult cuCtxCreate(CUcontext* context, unsigned, CUdevice gpu) {
  return made(context, gpu);
}
#endif
CUresult cuCtxDestroy(CUcontext context) {
  return context == context_of(current_gpu()) ? cuCtxPopCurrent(nullptr) : CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = context_of(current_gpu());
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  if (context == nullptr) return CUDA_SUCCESS;
  const int gpu = gpu_of_context(context);
  return gpu < 0 ? CUDA_ERROR_INVALID_CONTEXT : result(cudaSetDevice(gpu));
}
CUresult cuCtxPushCurrent(CUcontext context) {
  return pushed(context);
}
CUresult cuCtxPopCurrent(CUcontext* context) {
  if (context != nullptr) *context = context_of(current_gpu());
  if (below.empty()) return CUDA_SUCCESS;
  const int gpu = below.back();
  below.pop_back();
  return result(cudaSetDevice(gpu));
}
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  KB_CALL;
  return result(cudaDeviceEnablePeerAccess(gpu_of_context(peer), flags));
}
CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  KB_CALL;
  return result(cudaDeviceDisablePeerAccess(gpu_of_context(peer)));
}
CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice one,
                                 CUdevice other) {
  return result(
      cudaDeviceGetP2PAttribute(value, static_cast<cudaDeviceP2PAttr>(attribute), one, other));
}
CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return result(cudaDeviceGetStreamPriorityRange(least, greatest));
}
CUresult cuCtxSetCacheConfig(CUfunc_cache) {
  return CUDA_SUCCESS;
}
CUresult cuDeviceCanAccessPeer(int* can, CUdevice one, CUdevice other) {
  return result(cudaDeviceCanAccessPeer(can, one, other));
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice gpu) {
  std::memset(uuid, 0, sizeof *uuid);
  uuid->bytes[0] = static_cast<char>(gpu);
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* number) {
  *number = current_gpu();
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() {
  return result(finish_gpu(current_gpu()));
}
CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return result(cudaStreamCreateWithFlags(stream, flags));
}
CUresult cuStreamDestroy(CUstream stream) {
  return result(cudaStreamDestroy(stream));
}
CUresult cuStreamSynchronize(CUstream stream) {
  return result(cudaStreamSynchronize(stream));
}
CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return result(cudaStreamCreateWithPriority(stream, flags, priority));
}
CUresult cuStreamQuery(CUstream stream) {
  return result(cudaStreamQuery(stream));
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return result(cudaStreamWaitEvent(stream, event, flags));
}
CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  *context = context_of(gpu_of(stream));
  return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return result(cudaEventCreateWithFlags(event, flags));
}
CUresult cuEventDestroy(CUevent event) {
  return result(cudaEventDestroy(event));
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  return result(cudaEventRecord(event, stream));
}
CUresult cuEventSynchronize(CUevent event) {
  return result(cudaEventSynchronize(event));
}
CUresult cuEventQuery(CUevent event) {
  return result(cudaEventQuery(event));
}
CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return result(cudaEventElapsedTime(milliseconds, start, end));
}

// ---- words that streams wait for ---------------------------------------------------------------

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                              unsigned flags) {
  KB_CALL;
  return write_word(stream, address, value, flags);
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                              unsigned flags) {
  KB_CALL;
  return write_word(stream, address, value, flags);
}
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                             unsigned flags) {
  KB_CALL;
  return wait_for_value(stream, address, value, flags);
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                             unsigned flags) {
  KB_CALL;
  return wait_for_value(stream, address, value, flags);
}

}  // extern "C"
