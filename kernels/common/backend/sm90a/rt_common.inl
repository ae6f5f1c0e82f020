// The CUDA runtime behind rt.cuh, except for the launch: what native code and the soft executor
// share. The driver's one function, the encoder of tensor maps, comes from the runtime's table of
// entry points: linking the driver's library would keep a build from loading without a GPU.
#pragma once

#include <cuda.h>  // types only
#include <cuda_runtime_api.h>

#include <algorithm>
#include <exception>

namespace kb::rt {

namespace detail {

// Throws for a failed call. What the runtime remembers of it is dropped, so that the next call does
// not report it again; an error that has ended the context stays.
inline void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  throw Error(std::string(call) + ": " + cudaGetErrorString(status));
}

// Freeing runs in destructors as well: while an earlier failure unwinds, that one is reported.
inline void check_free(cudaError_t status, const char* call) {
  if (std::uncaught_exceptions() == 0) check(status, call);
}

inline cudaStream_t cuda_stream(Stream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

inline int device_attribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
  return value;
}

using EncodeTiled = decltype(&::cuTensorMapEncodeTiled);

inline EncodeTiled find_encode_tiled() {
  constexpr const char* kName = "cuTensorMapEncodeTiled";
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  check(cudaGetDriverEntryPointByVersion(kName, &entry, 12000, cudaEnableDefault, &found),
        "cudaGetDriverEntryPointByVersion");
  if (found != cudaDriverEntryPointSuccess || entry == nullptr) {
    throw Error(std::string(kName) +
                ": the driver has no such function; it needs CUDA 12 or later");
  }
  return reinterpret_cast<EncodeTiled>(entry);
}

// PTX and the driver number the types differently.
inline CUtensorMapDataType data_type(TensorMapElement element) {
  switch (element) {
    case TensorMapElement::kU8:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    case TensorMapElement::kU16:
      return CU_TENSOR_MAP_DATA_TYPE_UINT16;
    case TensorMapElement::kU32:
      return CU_TENSOR_MAP_DATA_TYPE_UINT32;
    case TensorMapElement::kS32:
      return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case TensorMapElement::kU64:
      return CU_TENSOR_MAP_DATA_TYPE_UINT64;
    case TensorMapElement::kS64:
      return CU_TENSOR_MAP_DATA_TYPE_INT64;
    case TensorMapElement::kF16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case TensorMapElement::kF32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case TensorMapElement::kF32Ftz:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ;
    case TensorMapElement::kF64:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    case TensorMapElement::kBf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  }
  throw Error("cuTensorMapEncodeTiled: unknown element type");
}

inline CUtensorMapSwizzle swizzle_mode(TensorMapSwizzle swizzle) {
  switch (swizzle) {
    case TensorMapSwizzle::kNone:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
    case TensorMapSwizzle::k32B:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    case TensorMapSwizzle::k64B:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case TensorMapSwizzle::k128B:
      return CU_TENSOR_MAP_SWIZZLE_128B;
  }
  throw Error("cuTensorMapEncodeTiled: unknown swizzle");
}

// "16 x 8": extents as a message shows them.
template <typename T>
std::string extents(const T* values, uint32_t count) {
  std::string text;
  for (uint32_t i = 0; i < count; ++i) text += (i ? " x " : "") + std::to_string(values[i]);
  return text.empty() ? "none" : text;
}

// The most that a kernel may ask for without saying so first.
inline constexpr uint32_t kSharedWithoutOptIn = 48 * 1024;

inline void allow_shared(const void* kernel, uint32_t bytes) {
  if (bytes <= kSharedWithoutOptIn) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "cudaFuncSetAttribute(MaxDynamicSharedMemorySize)");
}

inline cudaAccessPolicyWindow access_policy_window(const PersistingL2& wanted) {
  const auto largest = static_cast<size_t>(device_attribute(cudaDevAttrMaxAccessPolicyWindowSize));
  cudaAccessPolicyWindow window = {};
  window.base_ptr = wanted.base;
  window.num_bytes = std::min(wanted.bytes, largest);
  window.hitRatio = 1;
  window.hitProp = cudaAccessPropertyPersisting;
  window.missProp = cudaAccessPropertyStreaming;
  return window;
}

// A launch as the runtime wants it. Points into itself: it stays where it is built.
struct LaunchPlan {
  cudaLaunchConfig_t config = {};
  cudaLaunchAttribute attributes[4] = {};

  LaunchPlan(const void* kernel, const LaunchConfig& wanted) {
    constexpr uint32_t kPortableCluster = 8;
    allow_shared(kernel, wanted.shared_bytes);
    config.gridDim = {wanted.grid.x, wanted.grid.y, wanted.grid.z};
    config.blockDim = {wanted.threads, 1, 1};
    config.dynamicSmemBytes = wanted.shared_bytes;
    config.stream = cuda_stream(wanted.stream);
    config.attrs = attributes;
    if (wanted.cluster > 1) {
      cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
      attribute.id = cudaLaunchAttributeClusterDimension;
      attribute.val.clusterDim = {wanted.cluster, 1, 1};
    }
    if (wanted.cluster > kPortableCluster) {
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
            "cudaFuncSetAttribute(NonPortableClusterSizeAllowed)");
    }
    if (wanted.cooperative) {
      cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
      attribute.id = cudaLaunchAttributeCooperative;
      attribute.val.cooperative = 1;
    }
    if (wanted.dependent) {
      cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
      attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attribute.val.programmaticStreamSerializationAllowed = 1;
    }
    if (wanted.persisting_l2.bytes != 0) {
      cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
      attribute.id = cudaLaunchAttributeAccessPolicyWindow;
      attribute.val.accessPolicyWindow = access_policy_window(wanted.persisting_l2);
    }
  }
  LaunchPlan(const LaunchPlan&) = delete;
  LaunchPlan& operator=(const LaunchPlan&) = delete;

  void launch(const void* kernel, void** arguments) const {
    const cudaError_t status = cudaLaunchKernelExC(&config, kernel, arguments);
    if (status == cudaSuccess) return;
    cudaGetLastError();
    const uint32_t grid[] = {config.gridDim.x, config.gridDim.y, config.gridDim.z};
    throw Error(std::string("cudaLaunchKernelExC: ") + cudaGetErrorString(status) + " (grid " +
                extents(grid, 3) + ", " + std::to_string(config.blockDim.x) + " threads, " +
                std::to_string(config.dynamicSmemBytes) + " bytes of shared memory)");
  }
};

}  // namespace detail

inline int sm_count() {
  return detail::device_attribute(cudaDevAttrMultiProcessorCount);
}

inline void* device_malloc(size_t bytes) {
  void* pointer = nullptr;
  detail::check(cudaMalloc(&pointer, bytes), "cudaMalloc");
  return pointer;
}
inline void device_free(void* pointer) {
  detail::check_free(cudaFree(pointer), "cudaFree");
}

inline void* pinned_malloc(size_t bytes) {
  void* pointer = nullptr;
  detail::check(cudaMallocHost(&pointer, bytes), "cudaMallocHost");
  return pointer;
}
inline void pinned_free(void* pointer) {
  detail::check_free(cudaFreeHost(pointer), "cudaFreeHost");
}

inline void copy_to_device(void* dst, const void* src, size_t bytes) {
  detail::check(cudaMemcpy(dst, src, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  // From pageable memory cudaMemcpy may return while the transfer is still on its way, which a
  // stream that does not synchronize with the default one would not notice.
  detail::check(cudaStreamSynchronize(cudaStreamLegacy), "cudaMemcpy");
}
inline void copy_to_host(void* dst, const void* src, size_t bytes) {
  detail::check(cudaMemcpy(dst, src, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
}
inline void copy_to_device_async(void* dst, const void* src, size_t bytes, Stream stream) {
  detail::check(
      cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, detail::cuda_stream(stream)),
      "cudaMemcpyAsync");
}
inline void memset_async(void* dst, int value, size_t bytes, Stream stream) {
  detail::check(cudaMemsetAsync(dst, value, bytes, detail::cuda_stream(stream)), "cudaMemsetAsync");
}
inline void stream_synchronize(Stream stream) {
  detail::check(cudaStreamSynchronize(detail::cuda_stream(stream)), "cudaStreamSynchronize");
}

inline TensorMap encode_tensor_map(const TensorMapTile& tile) {
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
  static const detail::EncodeTiled encode = detail::find_encode_tiled();
  const cuuint32_t element_strides[5] = {1, 1, 1, 1, 1};
  cuuint64_t dims[5];
  cuuint64_t strides[4];
  std::copy(std::begin(tile.dims), std::end(tile.dims), dims);
  std::copy(std::begin(tile.strides), std::end(tile.strides), strides);
  TensorMap map;
  const CUresult result =
      encode(reinterpret_cast<CUtensorMap*>(&map), detail::data_type(tile.element), tile.rank,
             const_cast<void*>(tile.address), dims, strides, tile.box, element_strides,
             CU_TENSOR_MAP_INTERLEAVE_NONE, detail::swizzle_mode(tile.swizzle),
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    const uint32_t rank = std::min<uint32_t>(tile.rank, 5);
    throw Error("cuTensorMapEncodeTiled: error " + std::to_string(result) + " for dims " +
                detail::extents(tile.dims, rank) + ", strides " +
                detail::extents(tile.strides, rank ? rank - 1 : 0) + ", box " +
                detail::extents(tile.box, rank));
  }
  return map;
}

template <typename... Parameters>
int ctas_per_sm(void (*kernel)(Parameters...), uint32_t threads, uint32_t shared_bytes) {
  const void* function = reinterpret_cast<const void*>(kernel);
  detail::allow_shared(function, shared_bytes);
  int count = 0;
  detail::check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                    &count, function, static_cast<int>(threads), shared_bytes),
                "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return count;
}

inline void reserve_persisting_l2(size_t bytes) {
  const auto most =
      static_cast<size_t>(detail::device_attribute(cudaDevAttrMaxPersistingL2CacheSize));
  size_t reserved = 0;
  detail::check(cudaDeviceGetLimit(&reserved, cudaLimitPersistingL2CacheSize),
                "cudaDeviceGetLimit");
  if (reserved >= std::min(bytes, most)) return;
  detail::check(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, std::min(bytes, most)),
                "cudaDeviceSetLimit(PersistingL2CacheSize)");
}

inline bool recorded(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  detail::check(cudaStreamIsCapturing(detail::cuda_stream(stream), &status),
                "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

struct Graph::State {
  std::function<void(Stream)> enqueue;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;

  explicit State(std::function<void(Stream)> of) : enqueue(std::move(of)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  // Of a static variable it runs when the runtime may have gone: failures mean nothing.
  ~State() {
    if (ready != nullptr) cudaGraphExecDestroy(ready);
    if (graph != nullptr) cudaGraphDestroy(graph);
  }

  // On a stream of its own: the legacy default stream cannot be recorded.
  void record() {
    cudaStream_t stream = nullptr;
    detail::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                  "cudaStreamCreateWithFlags");
    const std::unique_ptr<CUstream_st, cudaError_t (*)(cudaStream_t)> owner(stream,
                                                                            cudaStreamDestroy);
    detail::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                  "cudaStreamBeginCapture");
    try {
      enqueue(Stream{stream});
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      throw;
    }
    detail::check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    detail::check(cudaGraphInstantiate(&ready, graph, 0), "cudaGraphInstantiate");
  }
};

inline Graph::Graph(std::function<void(Stream)> enqueue)
    : state_(std::make_unique<State>(std::move(enqueue))) {}
inline Graph::~Graph() = default;

inline void Graph::launch(Stream stream) {
  if (state_->ready == nullptr) state_->record();
  detail::check(cudaGraphLaunch(state_->ready, detail::cuda_stream(stream)), "cudaGraphLaunch");
}

}  // namespace kb::rt
