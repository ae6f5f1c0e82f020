// What the loader calls, and what nvcc's host code registers. Which functions this folder has is
// all that is supported: the linker names the others.
#include <cxxabi.h>
#include <pthread.h>
#include <setjmp.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "order.hpp"
#include "state.hpp"

namespace kb::cuda {

Launch launch_kernel = nullptr;
Missing missing = nullptr;
Missing machine_code_only = nullptr;
LoadPtx load_ptx = nullptr;
LoadImage load_image = nullptr;
LoadAgain load_again = nullptr;
Resident resident = nullptr;
CompileText compile_text = nullptr;
Transform transform = nullptr;
Device device;
bool main_has_ended = false;
std::map<int, Module> modules;

namespace {

// What a library has registered: kernels by the host's function, variables by the host's.
struct Registered {
  int module;
  std::string name;
  bool shared = false;  // by all GPUs
};
std::map<const void*, Registered> stubs;
std::map<const void*, Registered> symbols;
// What libraries have as a handle of an image, by the number of its module; -1 for none.
std::map<int, void*> images;
sigjmp_buf at_exit_of_main;
pthread_t thread_of_main;
bool in_main = false;

struct Pushed {
  dim3 grid, block;
  size_t shared;
  void* stream;
  const void* pc;
};
thread_local std::vector<Pushed> pushed;

int module_of(void** handle) {
  for (const auto& [number, image] : images) {
    if (&image == handle) return number;
  }
  return -1;
}

template <typename T>
T* found_in(std::map<std::string, T> Module::* members, const Registered& registered) {
  Module& module = modules[registered.module];
  const auto found = (module.*members).find(registered.name);
  return found != (module.*members).end() ? &found->second : nullptr;
}

}  // namespace

Kernel* kernel_of(const void* function) {
  const auto stub = stubs.find(function);
  if (stub != stubs.end()) {
    // An image without PTX, which has no number.
    if (stub->second.module < 0) machine_code_only(stub->second.name.c_str());
    return found_in(&Module::kernels, stub->second);
  }
  for (auto& [number, module] : modules) {
    for (auto& [name, kernel] : module.kernels) {
      if (&kernel == function) return &kernel;
    }
  }
  return nullptr;
}

const void* function_of(const Kernel* kernel) {
  for (const auto& [function, of] : stubs) {
    if (of.module == kernel->module && of.name == kernel->name) return function;
  }
  return kernel;
}

namespace {

// CUDA: each device has variables of its own; managed ones are everybody's.
int module_on(int module, int gpu) {
  if (gpu == 0) return module;
  bool own = false, shared = false;
  for (const auto& [host, each] : symbols) {
    if (each.module == module) (each.shared ? shared : own) = true;
  }
  if (!own) return module;
  if (shared) not_here("managed variables beside others of their module on several GPUs");
  static std::map<std::pair<int, int>, int> copies;
  const auto [found, made] = copies.try_emplace({module, gpu}, module);
  const int number = made ? load_again(module) : found->second;
  if (number < 0) return module;
  modules[number].gpu = gpu;
  return found->second = number;
}

}  // namespace

Kernel* kernel_on(Kernel* kernel, int gpu) {
  const int module = module_on(kernel->module, gpu);
  if (module == kernel->module) return kernel;
  Kernel& other = modules[module].kernels[kernel->name];
  other.dynamic_limit = kernel->dynamic_limit;
  other.most_cluster = kernel->most_cluster;
  return &other;
}

Variable* variable_of(const void* symbol) {
  const auto found = symbols.find(symbol);
  if (found == symbols.end()) return nullptr;
  Registered of = found->second;
  if (!of.shared) of.module = module_on(of.module, current_gpu());
  return found_in(&Module::variables, of);
}

namespace {

void leave_with(int status) {
  if (in_main && pthread_equal(thread_of_main, pthread_self())) {
    siglongjmp(at_exit_of_main, status + 1);
  }
}

int status_of_other = 0;
volatile std::sig_atomic_t told_to_end = 0;

// Of a thread that is not main's: main leaves where it is, between two calls.
void leave_from_other(int status) {
  if (!in_main && !main_has_ended) return;
  if (pthread_equal(thread_of_main, pthread_self())) return;
  status_of_other = status;
  struct sigaction action = {};
  action.sa_handler = [](int) { leave_with(status_of_other); };
  sigaction(SIGUSR2, &action, nullptr);
  {
    KB_ONE_CALL;
    if (in_main) pthread_kill(thread_of_main, SIGUSR2);
  }
  for (;;) pause();
}

// As a shell says it.
constexpr int kAborted = 128 + SIGABRT, kToldToEnd = 128 + SIGTERM;

void at_terminate() {
  try {
    if (abi::__cxa_current_exception_type() != nullptr) throw;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "terminate called: %s\n", error.what());
  } catch (...) {
  }
  leave_with(kAborted);
  std::abort();
}

}  // namespace

void leave_main(int status) {
  leave_with(status);
  leave_from_other(status);
}

void leave_if_told() {
  if (told_to_end != 0) leave_main(kToldToEnd);
}

}  // namespace kb::cuda

using namespace kb::cuda;

extern "C" {

// ---- for the loader ----------------------------------------------------------------------------

void kb_cudart_start(Launch launch, Missing named, Missing without_ptx, LoadPtx load,
                     LoadImage image, Resident resident_ctas, CompileText compile,
                     Transform transformer, LoadAgain again) {
  launch_kernel = launch;
  missing = named;
  machine_code_only = without_ptx;
  load_ptx = load;
  load_image = image;
  resident = resident_ctas;
  compile_text = compile;
  transform = transformer;
  load_again = again;
}

void kb_cudart_device(int sms, int arch, int shared_bytes, int count, double limit_s) {
  device = {arch, sms, shared_bytes, count, limit_s};
}

void kb_cudart_current(cudaStream_t stream, int at_once) {
  current_stream = stream;
  current_at_once = at_once != 0;
}

void kb_cudart_set_current_stream(cudaStream_t stream) {
  current_stream = stream;
}

cudaStream_t kb_cudart_current_stream() {
  return current_stream;
}

// Names of what nobody has waited for, a line each; it will not be done.
const char* kb_cudart_dropped() {
  static std::string names;
  names = dropped();
  return names.c_str();
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

// main's status, also where it leaves by exit, abort or a failed assertion: what was found counts.
int kb_cudart_run(int (*main_function)(int, char**), int argc, char** argv) {
  in_main = true;
  thread_of_main = pthread_self();
  watch_program(reinterpret_cast<const void*>(main_function));
  std::signal(SIGTERM, [](int) { told_to_end = 1; });
  watch_for_silence();
  static int status;
  static pid_t process;
  process = getpid();
  const std::terminate_handler before = std::set_terminate(at_terminate);
  const int left = sigsetjmp(at_exit_of_main, 1);
  status = left != 0 ? left - 1 : main_function(argc, argv);
  if (getpid() != process) {  // a fork of the program's: only the program is checked
    std::fflush(nullptr);
    _exit(status);
  }
  std::set_terminate(before);
  std::signal(SIGTERM, SIG_DFL);
  in_main = false;
  main_has_ended = true;
  finish_all();  // what nobody has waited for is checked, too
  return status;
}

int kb_cudart_told_to_end() {
  return told_to_end;
}

void __wrap_exit(int status) {
  leave_main(status & 0xff);
  std::exit(status);
}

void __wrap_abort() {
  leave_main(kAborted);
  std::abort();
}

void __wrap___assert_fail(const char* text, const char* file, unsigned line, const char* function) {
  std::fprintf(stderr, "%s:%u: %s: Assertion `%s' failed.\n", file, line, function, text);
  __wrap_abort();
}

// What a program that was linked with NVIDIA's runtime calls, and this one has not.
cudaError_t kb_cudart_lacks(const char* name) {
  return not_here(name);
}

// ---- what nvcc's host code calls ---------------------------------------------------------------

// What nvcc passes (fatbinary_section.h): of a program whose device code is linked, version 2, the
// images of its parts, too.
void** __cudaRegisterFatBinary(void* wrapper) {
  struct {
    int magic, version;
    const void* image;
    const void* const* parts;
  } given;
  std::memcpy(&given, wrapper, sizeof given);
  return &images[load_image(given.image, given.version == 2 ? given.parts : nullptr)];
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) {
  return 0;
}
void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, void*,
                            void*, void*, void*, int*) {
  stubs[host] = {module_of(handle), name};
}
void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, size_t, int, int) {
  symbols[host] = {module_of(handle), name};
}
// Host code reaches a managed variable through a pointer.
void __cudaRegisterManagedVar(void** handle, void** host, char*, const char* name, int, size_t, int,
                              int) {
  symbols[host] = {module_of(handle), name, true};
  if (Variable* const variable = variable_of(host)) *host = variable->address;
}
void __cudaRegisterHostVar(void**, const char*, char*, size_t) {}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  pushed.push_back(
      {grid, block, shared, stream, __builtin_extract_return_addr(__builtin_return_address(0))});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  const Pushed last = pushed.back();
  pushed.pop_back();
  launched_from(last.pc);
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
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                    size_t shared, cudaStream_t stream) {
  const PerThread scope;
  return __cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

}  // extern "C"
