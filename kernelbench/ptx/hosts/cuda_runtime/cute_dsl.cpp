// What host code of CuTe DSL calls: functions of CUDA under names of its own, with the same
// parameters, as its modules declare them.
#include <algorithm>
#include <cstring>
#include <deque>

#include "state.hpp"
#include "written_maps.hpp"

using namespace kb::cuda;

extern "C" {

// Its images have machine code only; load_image finds the PTX that CuTe DSL has kept.
cudaError_t _cudaLibraryLoadData(cudaLibrary_t* library, const void* code, void*, void**, unsigned,
                                 void*, void**, unsigned) {
  const int number = load_image(code, nullptr);
  if (number < 0) return not_here("a module of CuTe DSL without PTX");
  *library = reinterpret_cast<cudaLibrary_t>(&modules[number]);
  return cudaSuccess;
}
cudaError_t _cudaLibraryUnload(cudaLibrary_t) {
  return cudaSuccess;
}
cudaError_t _cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  return remembered(static_cast<cudaError_t>(cuLibraryGetKernel(
      reinterpret_cast<CUkernel*>(kernel), reinterpret_cast<CUlibrary>(library), name)));
}
cudaError_t _cudaLibraryGetGlobal(void** address, size_t* bytes, cudaLibrary_t library,
                                  const char* name) {
  return remembered(static_cast<cudaError_t>(cuModuleGetGlobal(
      reinterpret_cast<CUdeviceptr*>(address), bytes, reinterpret_cast<CUmodule>(library), name)));
}
cudaError_t _cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute attribute,
                                             int value, int) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
CUresult _cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel,
                               CUdevice) {
  const Kernel* const found = kernel_of(kernel);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(found->static_shared);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = static_cast<int>(found->most_threads);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = static_cast<int>(found->dynamic_limit -
                                std::min(found->dynamic_limit, found->static_shared));
      return CUDA_SUCCESS;
    default:
      not_here("attribute " + std::to_string(attribute) + " of a kernel");
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}
cudaError_t _cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(kernel, attribute, value);
}
cudaError_t _cudaLaunchKernelEx(const cudaLaunchConfig_t* config, const void* function,
                                void** arguments) {
  Kernel* const kernel = kernel_of(function);
  if (kernel == nullptr) return launch_with(*config, kernel, arguments);
  std::vector<void*> given(arguments, arguments + kernel->sizes.size());
  std::deque<CUtensorMap> maps;
  for (size_t at = 0; at < given.size(); ++at) {
    uint64_t words[8];
    if (kernel->sizes[at] != sizeof(CUtensorMap)) continue;
    std::memcpy(words, given[at], sizeof words);
    if (!is_written_map(words)) continue;
    const CUresult status = encode_written_map(&maps.emplace_back(), words);
    if (status != CUDA_SUCCESS) return remembered(static_cast<cudaError_t>(status));
    given[at] = &maps.back();
  }
  return launch_with(*config, kernel, given.data());
}
cudaError_t _cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel,
                                                           int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, shared);
}
cudaError_t _cudaGetDevice(int* number) {
  return cudaGetDevice(number);
}
cudaError_t _cudaGetDeviceCount(int* count) {
  return cudaGetDeviceCount(count);
}
cudaError_t _cudaSetDevice(int number) {
  return cudaSetDevice(number);
}
cudaError_t _cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int number) {
  return cudaDeviceGetAttribute(value, attribute, number);
}
cudaError_t _cudaDeviceSynchronize() {
  return cudaDeviceSynchronize();
}
cudaError_t _cudaStreamSynchronize(cudaStream_t stream) {
  return cudaStreamSynchronize(stream);
}
cudaError_t _cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreate(stream);
}
cudaError_t _cudaStreamDestroy(cudaStream_t stream) {
  return cudaStreamDestroy(stream);
}
cudaError_t _cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream) {
  return cudaMemsetAsync(address, value, bytes, stream);
}
cudaError_t _cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                             cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, kind, stream);
}
CUresult _cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType element, cuuint32_t rank,
                                 void* address, const cuuint64_t* dims, const cuuint64_t* strides,
                                 const cuuint32_t* box, const cuuint32_t* element_strides,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  return cuTensorMapEncodeTiled(map, element, rank, address, dims, strides, box, element_strides,
                                interleave, swizzle, promotion, fill);
}

}  // extern "C"
