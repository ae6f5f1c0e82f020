// The GPUs that there are, all of a kind, and errors.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "order.hpp"
#include "state.hpp"

namespace kb::cuda {

namespace {

int last_error = cudaSuccess;
// The last launch that was refused, as long as the program has not asked for errors.
std::string refused;
cudaError_t refused_with = cudaSuccess;

// Of cudaDeviceProp and cudaDeviceAttr (CUDA C++ Programming Guide, 16.2).
constexpr int kThreads = 1024, kResidentThreads = 2048, kRegisters = 65536, kShared = 48 * 1024,
              kReservedShared = 1024, kL2Bytes = 50 << 20, kBlocksOfSm = 32;

struct Attribute {
  int number;
  int value;
};
constexpr Attribute kFixed[] = {
    {cudaDevAttrMaxThreadsPerBlock, kThreads},
    {cudaDevAttrMaxBlockDimX, kThreads},
    {cudaDevAttrMaxBlockDimY, kThreads},
    {cudaDevAttrMaxBlockDimZ, 64},
    {cudaDevAttrMaxGridDimX, 0x7fffffff},
    {cudaDevAttrMaxGridDimY, 65535},
    {cudaDevAttrMaxGridDimZ, 65535},
    {cudaDevAttrMaxSharedMemoryPerBlock, kShared},
    {cudaDevAttrTotalConstantMemory, 65536},
    {cudaDevAttrWarpSize, 32},
    {cudaDevAttrMaxPitch, 0x7fffffff},
    {cudaDevAttrMaxRegistersPerBlock, kRegisters},
    {cudaDevAttrMaxRegistersPerMultiprocessor, kRegisters},
    {cudaDevAttrClockRate, 1000000},
    {cudaDevAttrMemoryClockRate, 1000000},
    {cudaDevAttrGlobalMemoryBusWidth, 5120},
    {cudaDevAttrTextureAlignment, 512},
    {cudaDevAttrConcurrentKernels, 1},
    {cudaDevAttrCanMapHostMemory, 1},
    {cudaDevAttrL2CacheSize, kL2Bytes},
    {cudaDevAttrMaxThreadsPerMultiProcessor, kResidentThreads},
    {cudaDevAttrAsyncEngineCount, 1},
    {cudaDevAttrUnifiedAddressing, 1},
    {cudaDevAttrStreamPrioritiesSupported, 1},
    {cudaDevAttrManagedMemory, 1},
    {cudaDevAttrConcurrentManagedAccess, 1},
    {cudaDevAttrPageableMemoryAccess, 0},
    {cudaDevAttrIntegrated, 0},
    {cudaDevAttrComputeMode, 0},
    {cudaDevAttrEccEnabled, 0},
    {cudaDevAttrKernelExecTimeout, 0},
    {cudaDevAttrComputePreemptionSupported, 1},
    {cudaDevAttrHostNativeAtomicSupported, 0},
    {cudaDevAttrHostRegisterSupported, 1},
    {cudaDevAttrCooperativeLaunch, 1},
    {cudaDevAttrMaxBlocksPerMultiprocessor, kBlocksOfSm},
    {cudaDevAttrReservedSharedMemoryPerBlock, kReservedShared},
    {cudaDevAttrMemoryPoolsSupported, 1},
    {cudaDevAttrMaxPersistingL2CacheSize, kL2Bytes / 2},
    {cudaDevAttrMaxAccessPolicyWindowSize, kL2Bytes},
};

constexpr int kLargestPriority = -5;

// Calls of the program that failed, and how: the first ones, with what made them.
struct Failed {
  std::string text;
  const void* pc;
  bool launch;
};
std::vector<Failed> failed;
constexpr size_t kMostFailed = 8;

thread_local int current = 0;
// By GPU, those whose memory it may access.
Gpus peers[kMostGpus] = {};
// Whether the program has asked how many there are, and how many SMs one has.
bool counted = false;
bool counted_sms = false;
int new_bytes = 0xff;

}  // namespace

int fresh_bytes() {
  return new_bytes;
}

int current_gpu() {
  return current;
}

bool has_gpu(int number) {
  return number >= 0 && number < device.count;
}

Gpus reached_by(int gpu) {
  return only(gpu) | peers[gpu];
}

std::string words_of_gpu(int gpu) {
  return device.count > 1 ? " of GPU " + std::to_string(gpu) : "";
}

cudaError_t remembered(cudaError_t status, const std::string& why) {
  if (status == cudaSuccess) return status;
  last_error = status;
  const Asked call = call_made();
  const bool known = std::any_of(failed.begin(), failed.end(),
                                 [&](const Failed& each) { return each.pc == call.pc; });
  if (call.pc == nullptr || known || failed.size() == kMostFailed) return status;
  failed.push_back(
      {call.name + " returned " + cudaGetErrorName(status) + (why.empty() ? "" : ": " + why),
       call.pc, call.name.find("Launch") != std::string::npos});
  return status;
}

cudaError_t launch_refused(const std::string& name, cudaError_t status, const std::string& why) {
  refused = why.empty() ? name : name + ", " + why + ",";
  refused_with = status;
  return remembered(status, why);
}

cudaError_t not_here(const std::string& what) {
  missing(what.c_str());
  return remembered(cudaErrorNotSupported);
}

cudaError_t device_attribute(int* value, int attribute) {
  for (const Attribute& each : kFixed) {
    if (each.number != attribute) continue;
    *value = each.value;
    return cudaSuccess;
  }
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      counted_sms = true;
      *value = device.sms;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = device.arch / 10;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = device.arch % 10;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = device.shared_bytes;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = device.shared_bytes + kReservedShared;
      return cudaSuccess;
    case cudaDevAttrClusterLaunch:
      *value = device.arch >= 90;
      return cudaSuccess;
    default:
      return not_here("device attribute " + std::to_string(attribute));
  }
}

}  // namespace kb::cuda

using namespace kb::cuda;

extern "C" {

// ---- the device --------------------------------------------------------------------------------

cudaError_t cudaDeviceSynchronize() {
  let_others_go_on();
  return finish_gpu(current);
}
cudaError_t cudaDeviceReset() {
  peers[current] = 0;
  return finish_gpu(current);
}
cudaError_t cudaGetDeviceCount(int* count) {
  counted = true;
  *count = device.count;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* number) {
  *number = current;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int number) {
  KB_CALL;
  if (!has_gpu(number)) return remembered(cudaErrorInvalidDevice);
  current = number;
  return cudaSuccess;
}
cudaError_t cudaInitDevice(int number, unsigned, unsigned) {
  KB_CALL;
  return has_gpu(number) ? cudaSuccess : remembered(cudaErrorInvalidDevice);
}
cudaError_t cudaSetDeviceFlags(unsigned) {
  return cudaSuccess;
}
cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  *flags = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int number) {
  KB_CALL;
  if (!has_gpu(number)) return remembered(cudaErrorInvalidDevice);
  return device_attribute(value, attribute);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* of, int number) {
  if (!has_gpu(number)) return remembered(cudaErrorInvalidDevice);
  std::memset(of, 0, sizeof *of);
  std::snprintf(of->name, sizeof of->name, "emulated sm_%d", device.arch);
  of->major = device.arch / 10;
  of->minor = device.arch % 10;
  counted_sms = true;
  of->multiProcessorCount = device.sms;
  of->totalGlobalMem = size_t{1} << 34;
  of->sharedMemPerBlock = kShared;
  of->sharedMemPerBlockOptin = static_cast<size_t>(device.shared_bytes);
  of->sharedMemPerMultiprocessor = of->sharedMemPerBlockOptin + kReservedShared;
  of->reservedSharedMemPerBlock = kReservedShared;
  of->regsPerBlock = of->regsPerMultiprocessor = kRegisters;
  of->warpSize = 32;
  of->maxThreadsPerBlock = kThreads;
  of->maxThreadsPerMultiProcessor = kResidentThreads;
  of->maxBlocksPerMultiProcessor = kBlocksOfSm;
  std::copy_n((const int[]){kThreads, kThreads, 64}, 3, of->maxThreadsDim);
  std::copy_n((const int[]){0x7fffffff, 65535, 65535}, 3, of->maxGridSize);
  of->memPitch = 0x7fffffff;
  of->totalConstMem = 65536;
  of->textureAlignment = 512;
  of->l2CacheSize = kL2Bytes;
  of->persistingL2CacheMaxSize = kL2Bytes / 2;
  of->accessPolicyMaxWindowSize = kL2Bytes;
  of->memoryBusWidth = 5120;
  of->asyncEngineCount = of->concurrentKernels = of->canMapHostMemory = 1;
  of->unifiedAddressing = of->managedMemory = of->concurrentManagedAccess = 1;
  of->streamPrioritiesSupported = of->cooperativeLaunch = of->hostRegisterSupported = 1;
  of->memoryPoolsSupported = 1;
  of->clusterLaunch = device.arch >= 90;
  of->pciBusID = number;
  return cudaSuccess;
}
cudaError_t cudaChooseDevice(int* number, const cudaDeviceProp*) {
  return cudaGetDevice(number);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = kLargestPriority;
  return cudaSuccess;
}
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) {
  return cudaSuccess;
}
cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit) {
  *value = kHeapBytes;
  return cudaSuccess;
}
// Memory that kernels take from by malloc.
uint64_t kb_cudart_heap(uint64_t* bytes) {
  void* address = nullptr;
  allocate(&address, kHeapBytes, cudaMemoryTypeDevice, true, kAllGpus);
  heap_of_kernels = range_of(address);
  *bytes = kHeapBytes;
  return reinterpret_cast<uint64_t>(address);
}
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) {
  return cudaSuccess;
}
// CUDA runtime API, peer device memory access. All GPUs can access each other.
cudaError_t cudaDeviceCanAccessPeer(int* can, int number, int peer) {
  KB_CALL;
  if (!has_gpu(number) || !has_gpu(peer)) return remembered(cudaErrorInvalidDevice);
  *can = number != peer;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  KB_CALL;
  if (!has_gpu(peer)) return remembered(cudaErrorInvalidDevice);
  if (flags != 0) return remembered(cudaErrorInvalidValue);
  if (peer == current) return remembered(cudaErrorPeerAccessUnsupported);
  if ((peers[current] & only(peer)) != 0) return remembered(cudaErrorPeerAccessAlreadyEnabled);
  peers[current] |= only(peer);
  return cudaSuccess;
}
cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  KB_CALL;
  if (!has_gpu(peer)) return remembered(cudaErrorInvalidDevice);
  if ((peers[current] & only(peer)) == 0) return remembered(cudaErrorPeerAccessNotEnabled);
  peers[current] &= ~only(peer);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int number,
                                      int peer) {
  KB_CALL;
  if (!has_gpu(number) || !has_gpu(peer) || number == peer) {
    return remembered(cudaErrorInvalidDevice);
  }
  *value = attribute != cudaDevP2PAttrPerformanceRank;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetByPCIBusId(int* number, const char* id) {
  unsigned bus = 0;
  const bool has_bus =
      std::sscanf(id, "%*x:%x:", &bus) == 1 || std::sscanf(id, "%x:%*x.", &bus) == 1;
  if (!has_bus || !has_gpu(static_cast<int>(bus))) return remembered(cudaErrorInvalidDevice);
  *number = static_cast<int>(bus);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) {
  *config = cudaFuncCachePreferNone;
  return cudaSuccess;
}
cudaError_t cudaDeviceGraphMemTrim(int) {
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int number) {
  if (!has_gpu(number)) return remembered(cudaErrorInvalidDevice);
  std::snprintf(id, static_cast<size_t>(length), "0000:%02x:00.0", number);
  return cudaSuccess;
}
cudaError_t cudaCtxResetPersistingL2Cache() {
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaProfilerStart() {
  return cudaSuccess;
}
cudaError_t cudaProfilerStop() {
  return cudaSuccess;
}

// ---- errors ------------------------------------------------------------------------------------

cudaError_t cudaPeekAtLastError() {
  refused.clear();
  return static_cast<cudaError_t>(last_error);
}
cudaError_t cudaGetLastError() {
  const int error = last_error;
  last_error = cudaSuccess;
  refused.clear();
  return static_cast<cudaError_t>(error);
}
// For the loader: one of the calls that failed, whose site has the number 0 (memory.cpp) then;
// launches first: programs may get along without what other calls refuse. Null for no more.
const char* kb_cudart_failed(size_t at) {
  std::stable_partition(failed.begin(), failed.end(), [](const Failed& of) { return of.launch; });
  if (at >= failed.size()) return nullptr;
  keep_site(0, failed[at].pc);
  return failed[at].text.c_str();
}

// What new memory of the GPU holds: NaN in every format, or what a comparison with NaN hides.
void kb_cudart_fill(int byte) {
  new_bytes = byte;
}

// Whether the program has asked how many GPUs there are, or how many SMs one has.
int kb_cudart_counted(int sms) {
  return sms != 0 ? counted_sms : counted;
}

// A launch that was refused and that the program has not noticed, or nothing.
const char* kb_cudart_unnoticed() {
  static std::string text;
  if (refused.empty()) return "";
  if (refused_with == cudaErrorNotPermitted) {
    text = refused + " that a stream calls has made a CUDA call, which CUDA does not allow";
  } else {
    text = refused + " was not launched (" + cudaGetErrorName(refused_with) +
           "), and the program did not ask for errors";
  }
  refused.clear();
  return text.c_str();
}

}  // extern "C"
