// What the loader calls, and what nvcc's host code registers. Which functions this folder has is
// all that is supported: the linker names the others. Work on a stream is done at once.
#include <csetjmp>
#include <cstdlib>

#include "state.hpp"

namespace kb::cuda {

Launch launch_kernel = nullptr;
Memory memory_changed = nullptr;
Missing missing = nullptr;
LoadPtx load_ptx = nullptr;
Device device;
std::map<int, Module> modules;

namespace {

std::map<const void*, std::string> stubs;  // kernels by the host's function
std::map<const void*, std::string> symbols;
std::jmp_buf at_exit_of_main;
bool in_main = false;

struct Pushed {
  dim3 grid, block;
  size_t shared;
  void* stream;
};
std::vector<Pushed> pushed;

}  // namespace

Kernel* kernel_of(const void* function) {
  const auto stub = stubs.find(function);
  if (stub != stubs.end()) {
    const auto found = modules[0].kernels.find(stub->second);
    return found != modules[0].kernels.end() ? &found->second : nullptr;
  }
  for (auto& [number, module] : modules) {
    for (auto& [name, kernel] : module.kernels) {
      if (&kernel == function) return &kernel;
    }
  }
  return nullptr;
}

Variable* variable_of(const void* symbol) {
  const auto found = symbols.find(symbol);
  if (found == symbols.end()) return nullptr;
  const auto variable = modules[0].variables.find(found->second);
  return variable != modules[0].variables.end() ? &variable->second : nullptr;
}

}  // namespace kb::cuda

using namespace kb::cuda;

extern "C" {

// ---- for the loader ----------------------------------------------------------------------------

void kb_cudart_start(Launch launch, Memory memory, Missing named, LoadPtx load, int sms, int arch,
                     int shared_bytes) {
  launch_kernel = launch;
  memory_changed = memory;
  missing = named;
  load_ptx = load;
  device = {arch, sms, shared_bytes};
}

void kb_cudart_kernel(int module, const char* name, uint32_t count, const uint32_t* offsets,
                      const uint32_t* sizes, uint32_t static_shared, uint32_t most_threads) {
  modules[module].number = module;
  modules[module].kernels[name] = {
      module,        name,        {offsets, offsets + count}, {sizes, sizes + count},
      static_shared, most_threads};
}

void kb_cudart_variable(int module, const char* name, void* address, uint64_t bytes) {
  modules[module].variables[name] = {address, bytes};
}

// main's status, also where it leaves by exit.
int kb_cudart_run(int (*main_function)(int, char**), int argc, char** argv) {
  in_main = true;
  const int left = setjmp(at_exit_of_main);
  const int status = left != 0 ? left - 1 : main_function(argc, argv);
  finish_all();  // what nobody has waited for is checked, too
  in_main = false;
  return status;
}

void __wrap_exit(int status) {
  if (in_main) std::longjmp(at_exit_of_main, (status & 0xff) + 1);
  std::exit(status);
}

// ---- what nvcc's host code calls ---------------------------------------------------------------

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) {
  return 0;
}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, void*, void*,
                            void*, void*, int*) {
  stubs[host] = name;
}
void __cudaRegisterVar(void**, char* host, char*, const char* name, int, size_t, int, int) {
  symbols[host] = name;
}
// Host code reaches a managed variable through a pointer.
void __cudaRegisterManagedVar(void**, void** host, char*, const char* name, int, size_t, int, int) {
  symbols[host] = name;
  if (Variable* const variable = variable_of(host)) *host = variable->address;
}
void __cudaRegisterHostVar(void**, const char*, char*, size_t) {}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  pushed.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  const Pushed last = pushed.back();
  pushed.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  *static_cast<void**>(stream) = last.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared, cudaStream_t stream) {
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, arguments, shared,
                          stream);
}

}  // extern "C"
