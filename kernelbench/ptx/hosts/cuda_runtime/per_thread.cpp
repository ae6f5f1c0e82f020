// What programs call that are compiled with --default-stream per-thread: the same functions, for
// which the default stream is the calling thread's own (CUDA runtime API, stream synchronization
// behavior). Names and endings are those of cuda_runtime_api.h.
#include "order.hpp"
#include "state.hpp"

namespace kb::cuda {

namespace {

template <auto function, const char* name>
struct OfThread;
template <typename... Arguments, cudaError_t (*function)(Arguments...), const char* name>
struct OfThread<function, name> {
  static cudaError_t call(Arguments... arguments) {
    const Call call(name, __builtin_extract_return_addr(__builtin_return_address(0)));
    const PerThread scope;
    return function(arguments...);
  }
};

}  // namespace

}  // namespace kb::cuda

// The loader asks for the function's address: its signature need not be written again.
#define KB_PER_THREAD(name, ending)                                                      \
  static constexpr char kb_name_of_##name[] = #name;                                     \
  extern "C" void* kb_resolve_##name() {                                                 \
    return reinterpret_cast<void*>(&kb::cuda::OfThread<&name, kb_name_of_##name>::call); \
  }                                                                                      \
  extern "C" void name##ending() __attribute__((ifunc("kb_resolve_" #name)));

KB_PER_THREAD(cudaMemcpy, _ptds)
KB_PER_THREAD(cudaMemcpy2D, _ptds)
KB_PER_THREAD(cudaMemcpy2DArrayToArray, _ptds)
KB_PER_THREAD(cudaMemcpy2DFromArray, _ptds)
KB_PER_THREAD(cudaMemcpy2DToArray, _ptds)
KB_PER_THREAD(cudaMemcpy3D, _ptds)
KB_PER_THREAD(cudaMemcpyFromSymbol, _ptds)
KB_PER_THREAD(cudaMemcpyToSymbol, _ptds)
KB_PER_THREAD(cudaMemset, _ptds)
KB_PER_THREAD(cudaMemset2D, _ptds)
KB_PER_THREAD(cudaMemset3D, _ptds)
KB_PER_THREAD(cudaEventRecord, _ptsz)
KB_PER_THREAD(cudaEventRecordWithFlags, _ptsz)
KB_PER_THREAD(cudaFreeAsync, _ptsz)
KB_PER_THREAD(cudaGraphLaunch, _ptsz)
KB_PER_THREAD(cudaGraphUpload, _ptsz)
KB_PER_THREAD(cudaLaunchCooperativeKernel, _ptsz)
KB_PER_THREAD(cudaLaunchHostFunc, _ptsz)
KB_PER_THREAD(cudaLaunchKernel, _ptsz)
KB_PER_THREAD(cudaLaunchKernelExC, _ptsz)
KB_PER_THREAD(cudaMallocAsync, _ptsz)
KB_PER_THREAD(cudaMallocFromPoolAsync, _ptsz)
KB_PER_THREAD(cudaMemPrefetchAsync, _ptsz)
KB_PER_THREAD(cudaMemcpy2DAsync, _ptsz)
KB_PER_THREAD(cudaMemcpy2DFromArrayAsync, _ptsz)
KB_PER_THREAD(cudaMemcpy2DToArrayAsync, _ptsz)
KB_PER_THREAD(cudaMemcpy3DAsync, _ptsz)
KB_PER_THREAD(cudaMemcpyAsync, _ptsz)
KB_PER_THREAD(cudaMemcpyFromSymbolAsync, _ptsz)
KB_PER_THREAD(cudaMemcpyToSymbolAsync, _ptsz)
KB_PER_THREAD(cudaMemset2DAsync, _ptsz)
KB_PER_THREAD(cudaMemset3DAsync, _ptsz)
KB_PER_THREAD(cudaMemsetAsync, _ptsz)
KB_PER_THREAD(cudaStreamAddCallback, _ptsz)
KB_PER_THREAD(cudaStreamAttachMemAsync, _ptsz)
KB_PER_THREAD(cudaStreamBeginCapture, _ptsz)
KB_PER_THREAD(cudaStreamCopyAttributes, _ptsz)
KB_PER_THREAD(cudaStreamEndCapture, _ptsz)
KB_PER_THREAD(cudaStreamGetAttribute, _ptsz)
KB_PER_THREAD(cudaStreamGetDevice, _ptsz)
KB_PER_THREAD(cudaStreamGetFlags, _ptsz)
KB_PER_THREAD(cudaStreamGetId, _ptsz)
KB_PER_THREAD(cudaStreamGetPriority, _ptsz)
KB_PER_THREAD(cudaStreamIsCapturing, _ptsz)
KB_PER_THREAD(cudaStreamQuery, _ptsz)
KB_PER_THREAD(cudaStreamSetAttribute, _ptsz)
KB_PER_THREAD(cudaStreamSynchronize, _ptsz)
KB_PER_THREAD(cudaStreamWaitEvent, _ptsz)
KB_PER_THREAD(cudaGetDriverEntryPoint, _ptsz)
#if CUDART_VERSION >= 12050
KB_PER_THREAD(cudaGetDriverEntryPointByVersion, _ptsz)
#endif
