// What stands in for the CUDA runtime in a program whose kernels run on the emulator: the functions
// that nvcc's host code and programs call, with the names and types of CUDA 13's headers. Work on a
// stream is done at once. Which functions are there is all that is supported: the linker names the
// others.
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace {

struct Dim {
  unsigned x, y, z;
};

// Of cudaError_t.
enum Status {
  kSuccess = 0,
  kInvalidValue = 1,
  kMemoryAllocation = 2,
  kInvalidDeviceFunction = 98,
  kInvalidDevice = 101,
  kLaunchFailure = 719,
};

// Launches a kernel by name; returns a Status.
using Launch = int (*)(const char* name, const unsigned* grid, const unsigned* block,
                       uint64_t shared, unsigned cluster, int cooperative, void** arguments);
// Says that memory of the GPU is there, or with no bytes that it is not any more.
using Memory = void (*)(void* address, uint64_t bytes);

Launch launch_kernel = nullptr;
Memory memory_changed = nullptr;
int multiprocessors = 0;
int capability = 0;  // 90 for 9.0

std::map<const void*, std::string> functions;  // by the host's stub
struct Config {
  Dim grid, block;
  size_t shared;
  void* stream;
};
std::vector<Config> configs;
std::map<void*, size_t> allocated;
int last_error = kSuccess;

std::jmp_buf at_exit_of_main;
bool in_main = false;

int remembered(int status) {
  if (status != kSuccess) last_error = status;
  return status;
}

int launched(const void* function, Dim grid, Dim block, void** arguments, size_t shared,
             unsigned cluster, bool cooperative) {
  const auto found = functions.find(function);
  if (found == functions.end()) return remembered(kInvalidDeviceFunction);
  return remembered(launch_kernel(found->second.c_str(), &grid.x, &block.x, shared, cluster,
                                  cooperative, arguments));
}

int allocate(void** address, size_t bytes) {
  constexpr size_t kAlignment = 256;
  const size_t rounded = (bytes / kAlignment + 1) * kAlignment;
  *address = std::aligned_alloc(kAlignment, rounded);
  if (*address == nullptr) return remembered(kMemoryAllocation);
  std::memset(*address, 0xff, rounded);  // NaN: a kernel must not rely on it
  allocated[*address] = bytes;
  if (bytes > 0) memory_changed(*address, bytes);
  return kSuccess;
}

int release(void* address) {
  if (address == nullptr) return kSuccess;
  if (allocated.erase(address) == 0) return remembered(kInvalidValue);
  memory_changed(address, 0);
  std::free(address);
  return kSuccess;
}

}  // namespace

// ---- for the loader ----------------------------------------------------------------------------

API void kb_cudart_start(Launch launch, Memory memory, int sms, int arch) {
  launch_kernel = launch;
  memory_changed = memory;
  multiprocessors = sms;
  capability = arch;
}

// main's status, also where it leaves by exit.
API int kb_cudart_run(int (*main_function)(int, char**), int argc, char** argv) {
  in_main = true;
  const int left = setjmp(at_exit_of_main);
  const int status = left != 0 ? left - 1 : main_function(argc, argv);
  in_main = false;
  return status;
}

API void __wrap_exit(int status) {
  if (in_main) std::longjmp(at_exit_of_main, (status & 0xff) + 1);
  std::exit(status);
}

// ---- what nvcc's host code calls ---------------------------------------------------------------

API void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
API void __cudaRegisterFatBinaryEnd(void**) {}
API void __cudaUnregisterFatBinary(void**) {}
API char __cudaInitModule(void**) {
  return 0;
}
API void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, void*,
                                void*, void*, void*, int*) {
  functions[host] = name;
}
API unsigned __cudaPushCallConfiguration(Dim grid, Dim block, size_t shared, void* stream) {
  configs.push_back({grid, block, shared, stream});
  return 0;
}
API int __cudaPopCallConfiguration(Dim* grid, Dim* block, size_t* shared, void** stream) {
  const Config last = configs.back();
  configs.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  *stream = last.stream;
  return kSuccess;
}
API int __cudaGetKernel(const void** kernel, const void* host) {
  *kernel = host;
  return kSuccess;
}
API int __cudaLaunchKernel(const void* kernel, Dim grid, Dim block, void** arguments, size_t shared,
                           void*) {
  return launched(kernel, grid, block, arguments, shared, 0, false);
}

// ---- launches ----------------------------------------------------------------------------------

API int cudaLaunchKernel(const void* function, Dim grid, Dim block, void** arguments, size_t shared,
                         void*) {
  return launched(function, grid, block, arguments, shared, 0, false);
}
API int cudaLaunchCooperativeKernel(const void* function, Dim grid, Dim block, void** arguments,
                                    size_t shared, void*) {
  return launched(function, grid, block, arguments, shared, 0, true);
}
API int cudaFuncSetAttribute(const void* function, int, int) {
  return functions.count(function) != 0 ? kSuccess : remembered(kInvalidDeviceFunction);
}

// ---- memory ------------------------------------------------------------------------------------

API int cudaMalloc(void** address, size_t bytes) {
  return allocate(address, bytes);
}
API int cudaMallocAsync(void** address, size_t bytes, void*) {
  return allocate(address, bytes);
}
API int cudaMallocManaged(void** address, size_t bytes, unsigned) {
  return allocate(address, bytes);
}
API int cudaMallocHost(void** address, size_t bytes) {
  return allocate(address, bytes);
}
API int cudaHostAlloc(void** address, size_t bytes, unsigned) {
  return allocate(address, bytes);
}
API int cudaFree(void* address) {
  return release(address);
}
API int cudaFreeAsync(void* address, void*) {
  return release(address);
}
API int cudaFreeHost(void* address) {
  return release(address);
}
API int cudaMemcpy(void* to, const void* from, size_t bytes, int) {
  std::memmove(to, from, bytes);
  return kSuccess;
}
API int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, void*) {
  std::memmove(to, from, bytes);
  return kSuccess;
}
API int cudaMemset(void* to, int value, size_t bytes) {
  std::memset(to, value, bytes);
  return kSuccess;
}
API int cudaMemsetAsync(void* to, int value, size_t bytes, void*) {
  std::memset(to, value, bytes);
  return kSuccess;
}

// ---- streams and events, which have no order of their own --------------------------------------

API int cudaStreamCreate(void** stream) {
  *stream = new char;
  return kSuccess;
}
API int cudaStreamCreateWithFlags(void** stream, unsigned) {
  return cudaStreamCreate(stream);
}
API int cudaStreamDestroy(void* stream) {
  delete static_cast<char*>(stream);
  return kSuccess;
}
API int cudaStreamSynchronize(void*) {
  return kSuccess;
}
API int cudaStreamWaitEvent(void*, void*, unsigned) {
  return kSuccess;
}
API int cudaEventCreate(void** event) {
  return cudaStreamCreate(event);
}
API int cudaEventCreateWithFlags(void** event, unsigned) {
  return cudaStreamCreate(event);
}
API int cudaEventDestroy(void* event) {
  return cudaStreamDestroy(event);
}
API int cudaEventRecord(void*, void*) {
  return kSuccess;
}
API int cudaEventSynchronize(void*) {
  return kSuccess;
}
// No time of a GPU: a number that no rate can be made of by division by zero.
API int cudaEventElapsedTime(float* milliseconds, void*, void*) {
  *milliseconds = __builtin_nanf("");
  return kSuccess;
}

// ---- the device --------------------------------------------------------------------------------

API int cudaDeviceSynchronize() {
  return kSuccess;
}
API int cudaGetDeviceCount(int* count) {
  *count = 1;
  return kSuccess;
}
API int cudaGetDevice(int* device) {
  *device = 0;
  return kSuccess;
}
API int cudaSetDevice(int device) {
  return device == 0 ? kSuccess : remembered(kInvalidDevice);
}
API int cudaDeviceGetAttribute(int* value, int attribute, int) {
  constexpr int kMultiprocessors = 16, kMajor = 75, kMinor = 76;
  switch (attribute) {
    case kMultiprocessors:
      *value = multiprocessors;
      return kSuccess;
    case kMajor:
      *value = capability / 10;
      return kSuccess;
    case kMinor:
      *value = capability % 10;
      return kSuccess;
    default:
      return remembered(kInvalidValue);
  }
}

// ---- errors ------------------------------------------------------------------------------------

API int cudaPeekAtLastError() {
  return last_error;
}
API int cudaGetLastError() {
  const int error = last_error;
  last_error = kSuccess;
  return error;
}
API const char* cudaGetErrorName(int error) {
  static thread_local char name[32];
  std::snprintf(name, sizeof name, "cudaError_t %d", error);
  return name;
}
API const char* cudaGetErrorString(int error) {
  switch (error) {
    case kSuccess:
      return "no error";
    case kInvalidValue:
      return "invalid argument, or nothing that the emulator knows";
    case kMemoryAllocation:
      return "out of memory";
    case kInvalidDeviceFunction:
      return "no kernel of this program";
    case kInvalidDevice:
      return "there is one GPU, number 0";
    case kLaunchFailure:
      return "the launch failed on the emulator";
    default:
      return "unknown error";
  }
}
