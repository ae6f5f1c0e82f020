// PTX text is loaded and its kernel launched.
#include <cuda.h>

#include "sample.h"
const char* const kText =
    ".version 8.0\n.target sm_90\n.address_size 64\n"
    ".visible .entry fill(.param .u64 to) {\n"
    " .reg .b32 %r<3>;\n .reg .b64 %d<4>;\n"
    " ld.param.u64 %d1, [to];\n cvta.to.global.u64 %d1, %d1;\n mov.u32 %r1, %tid.x;\n"
    " mul.wide.u32 %d2, %r1, 4;\n add.s64 %d3, %d1, %d2;\n st.global.u32 [%d3], %r1;\n ret;\n}\n";
int main() {
  int* data = managed<int>(32);
  CUmodule module;
  CUfunction function;
  if (cuModuleLoadData(&module, kText) || cuModuleGetFunction(&function, module, "fill")) return 1;
  void* arguments[] = {&data};
  if (cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr)) return 1;
  CHECK(cudaDeviceSynchronize());
  return verdict(data[31] == 31);
}
