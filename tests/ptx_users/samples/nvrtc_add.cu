// Text is compiled while the program runs.
#include <cuda.h>
#include <nvrtc.h>

#include "sample.h"
int main() {
  const char* text = "extern \"C\" __global__ void add(int* data) { data[threadIdx.x] += 5; }";
  nvrtcProgram program;
  if (nvrtcCreateProgram(&program, text, "add.cu", 0, nullptr, nullptr)) return 1;
  const char* options[] = {"--gpu-architecture=compute_90"};
  if (nvrtcCompileProgram(program, 1, options)) return 1;
  size_t size;
  if (nvrtcGetPTXSize(program, &size)) return 1;
  char* ptx = new char[size];
  if (nvrtcGetPTX(program, ptx)) return 1;
  int* data = managed<int>(32);
  for (int i = 0; i < 32; ++i) data[i] = i;
  CUmodule module;
  CUfunction function;
  if (cuModuleLoadData(&module, ptx) || cuModuleGetFunction(&function, module, "add")) return 1;
  void* arguments[] = {&data};
  if (cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr)) return 1;
  CHECK(cudaDeviceSynchronize());
  return verdict(data[31] == 36);
}
