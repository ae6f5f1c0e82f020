// Functions by name: dlopen and dlsym of a program, which is linked with --wrap for both. A program
// that loads libcuda, libcudart, libnvrtc, libcublas, libcufft or libcurand itself gets this
// library, whichever of them the machine has.
#include <dlfcn.h>

#include <cstring>
#include <string>

#include "state.hpp"

namespace kb::cuda {

namespace {

// This library. Its functions come before those of the same name that the process has loaded.
void* own_handle() {
  static void* const handle = [] {
    Dl_info found;
    dladdr(reinterpret_cast<const void*>(&own_function), &found);
    return dlopen(found.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  return handle;
}

bool stood_in_for(const char* file) {
  const char* const slash = std::strrchr(file, '/');
  const std::string name = slash != nullptr ? slash + 1 : file;
  for (const char* const each : {"libcuda.so", "libcudart.so", "libnvrtc.so", "libcublas.so",
                                 "libcufft.so", "libcurand.so"}) {
    if (name.rfind(each, 0) == 0) return true;
  }
  return false;
}

}  // namespace

void* own_function(const char* name) {
  return dlsym(own_handle(), name);
}

}  // namespace kb::cuda

using namespace kb::cuda;

extern "C" {

void* __wrap_dlopen(const char* file, int flags) {
  return file != nullptr && stood_in_for(file) ? own_handle() : dlopen(file, flags);
}

void* __wrap_dlsym(void* handle, const char* name) {
  if (handle != own_handle()) {
    const bool of_cuda = handle == RTLD_DEFAULT && std::strncmp(name, "cu", 2) == 0;
    void* const found = of_cuda ? own_function(name) : nullptr;
    return found != nullptr ? found : dlsym(handle, name);
  }
  void* const found = own_function(name);
  if (found == nullptr) not_here(name);
  return found;
}

}  // extern "C"
