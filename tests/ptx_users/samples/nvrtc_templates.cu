// Templates, headers and a failure of text that is compiled while the program runs.
#include <cuda.h>
#include <nvrtc.h>

#include <cstring>
#include <string>

#include "sample.h"

static const char* const kText =
    "#include \"factor.h\"\n"
    "namespace own {\n"
    "template <typename T, int kAdded> __global__ void scale(T* data) {\n"
    "  data[threadIdx.x] = data[threadIdx.x] * kFactor + kAdded;\n"
    "}\n"
    "__device__ int offset;\n"
    "}\n";

int main() {
  const char* header = "constexpr int kFactor = FACTOR;";
  const char* include = "factor.h";
  const char* kernel = "own::scale<float, 3>";
  const char* variable = "&own::offset";
  nvrtcProgram program;
  if (nvrtcCreateProgram(&program, kText, "scale.cu", 1, &header, &include)) return 1;
  if (nvrtcCompileProgram(program, 0, nullptr) != NVRTC_ERROR_COMPILATION) return 1;
  size_t size;
  if (nvrtcGetProgramLogSize(program, &size)) return 1;
  std::string log(size, ' ');
  if (nvrtcGetProgramLog(program, log.data()) || log.find("FACTOR") == log.npos) return 1;
  if (nvrtcDestroyProgram(&program)) return 1;

  if (nvrtcCreateProgram(&program, kText, "scale.cu", 1, &header, &include)) return 1;
  if (nvrtcAddNameExpression(program, kernel) || nvrtcAddNameExpression(program, variable)) {
    return 1;
  }
  const char* options[] = {"--gpu-architecture=compute_90", "-DPICK(a,b)=b", "-DFACTOR=PICK(1,2)",
                           "--std=c++17"};
  if (nvrtcCompileProgram(program, 4, options)) return 1;
  const char *lowered, *lowered_variable;
  if (nvrtcGetLoweredName(program, kernel, &lowered)) return 1;
  if (nvrtcGetLoweredName(program, variable, &lowered_variable)) return 1;
  if (nvrtcGetPTXSize(program, &size)) return 1;
  std::string ptx(size, ' ');
  if (nvrtcGetPTX(program, ptx.data())) return 1;

  float* data = managed<float>(32);
  for (int i = 0; i < 32; ++i) data[i] = i;
  CUmodule module;
  CUfunction function;
  CUdeviceptr offset;
  if (cuModuleLoadData(&module, ptx.c_str())) return 1;
  if (cuModuleGetFunction(&function, module, lowered)) return 1;
  if (cuModuleGetGlobal(&offset, &size, module, lowered_variable) || size != sizeof(int)) return 1;
  void* arguments[] = {&data};
  if (cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr)) return 1;
  CHECK(cudaDeviceSynchronize());
  return verdict(data[31] == 65 && nvrtcDestroyProgram(&program) == NVRTC_SUCCESS);
}
