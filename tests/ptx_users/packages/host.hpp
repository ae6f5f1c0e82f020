// What the programs around published kernels share: arrays that the host and the device have,
// tensor maps, and a comparison with double precision.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <tuple>
#include <variant>
#include <vector>

#define CHECK(call)                                                             \
  do {                                                                          \
    if (const auto status = (call); int(status) != 0) {                         \
      std::printf("%s:%d: %s is %d\n", __FILE__, __LINE__, #call, int(status)); \
      std::exit(1);                                                             \
    }                                                                           \
  } while (false)

// A number in [-1, 1] that depends on its place, in steps of 1/8: exact in every format but e2m1.
inline float value(size_t at, unsigned seed) {
  uint32_t mixed = uint32_t(at) * 2654435761u + seed * 40503u;
  mixed ^= mixed >> 15;
  mixed *= 2246822519u;
  mixed ^= mixed >> 13;
  return float(int(mixed % 17) - 8) / 8;
}

// An array on the host and its copy on the device.
template <typename T>
struct Array {
  std::vector<T> host;
  T* device = nullptr;

  explicit Array(size_t count) : host(count) { CHECK(cudaMalloc(&device, count * sizeof(T))); }
  Array(size_t count, unsigned seed) : Array(count) {
    for (size_t i = 0; i < count; ++i) host[i] = T(value(i, seed));
    up();
  }
  Array(std::vector<T> values) : Array(values.size()) {
    host = std::move(values);
    up();
  }
  void up() {
    CHECK(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  void down() {
    CHECK(cudaMemcpy(host.data(), device, host.size() * sizeof(T), cudaMemcpyDeviceToHost));
  }
  double operator[](size_t at) const { return double(float(host[at])); }
};

struct Pieces {
  struct {
    uint8_t* to;
    const uint8_t* from;
    size_t bytes;
  } piece[8];
  int count;
};

static __global__ void write_pieces(Pieces pieces) {
  asm volatile("griddepcontrol.launch_dependents;");
#ifdef SLOW
  for (const long long until = clock64() + SLOW; clock64() < until;) {
  }
#endif
  for (int i = 0; i < pieces.count; ++i) {
    const auto each = pieces.piece[i];
    for (size_t at = threadIdx.x; at < each.bytes / 4; at += blockDim.x)
      reinterpret_cast<uint32_t*>(each.to)[at] = reinterpret_cast<const uint32_t*>(each.from)[at];
    for (size_t at = each.bytes / 4 * 4 + threadIdx.x; at < each.bytes; at += blockDim.x)
      each.to[at] = each.from[at];
  }
}

// Has a kernel write the arrays that the next launch reads, and let that launch begin early.
template <typename... Arrays>
void produce(Arrays&... arrays) {
  Pieces pieces{};
  const auto add = [&](auto& array) {
    const size_t bytes = array.host.size() * sizeof(array.host[0]);
    uint8_t* from = nullptr;
    CHECK(cudaMalloc(&from, bytes));
    CHECK(cudaMemcpy(from, array.host.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(array.device, 0xff, bytes));
    pieces.piece[pieces.count++] = {reinterpret_cast<uint8_t*>(array.device), from, bytes};
  };
  (add(arrays), ...);
  write_pieces<<<1, 256>>>(pieces);
  CHECK(cudaGetLastError());
}

// Whether what came is near what should; says where it is not.
inline bool near(const char* what, size_t at, double got, double want, double tolerance) {
  if (std::fabs(got - want) <= tolerance * std::fmax(1, std::fabs(want))) return true;
  std::printf("%s[%zu] is %g, and should be %g\n", what, at, got, want);
  return false;
}

// A tensor map of rows (the outer extent may have planes); extents and box from the inner one.
template <typename T>
CUtensorMap tensor_map(T* data, CUtensorMapDataType type, std::vector<cuuint64_t> extent,
                       std::vector<cuuint32_t> box, int swizzle_bytes,
                       std::vector<cuuint64_t> pitches = {}) {
  void* encode = nullptr;
  cudaDriverEntryPointQueryResult found;
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000,
                                         cudaEnableDefault, &found));
  CUtensorMap map;
  std::vector<cuuint64_t> strides;
  cuuint64_t stride = sizeof(T);
  for (size_t i = 0; i + 1 < extent.size(); ++i) strides.push_back(stride *= extent[i]);
  if (!pitches.empty()) strides = pitches;
  const std::vector<cuuint32_t> ones(extent.size(), 1);
  const auto swizzle = swizzle_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                       : swizzle_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                       : swizzle_bytes == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                                             : CU_TENSOR_MAP_SWIZZLE_NONE;
  CHECK(reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(encode)(
      &map, type, cuuint32_t(extent.size()), data, extent.data(), strides.data(), box.data(),
      ones.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  return map;
}

// Launches with clusters, dependent on the launch before as the packages do.
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared, unsigned cluster,
            Arguments&&... arguments) {
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {cluster, 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.attrs = attributes;
  config.numAttrs = 2;
  CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
}
