// Right versions, written small, of what published kernels got wrong with dependent launches: waits
// that a flag of the build leaves out, a table of pointers that is read too early.
#include <cuda_runtime.h>

#include "check.h"

#define GRID_DEPENDENCY_CONTROL  // as by a flag of the build

namespace {

constexpr int kThreads = 64, kGroups = 3, kCount = kGroups * kThreads;

// Nothing without the flag (flashinfer#2708: the launches keep their attribute).
__device__ void wait_for_launch_ahead() {
#ifdef GRID_DEPENDENCY_CONTROL
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ void let_dependents_begin() {
#ifdef GRID_DEPENDENCY_CONTROL
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__global__ void quantize(const float* in, char* out) {
  wait_for_launch_ahead();
  let_dependents_begin();
  const int at = blockIdx.x * kThreads + threadIdx.x;
  out[at] = static_cast<char>(in[at]);
}
__global__ void multiply(const char* in, const float* weights, float* out) {
  const int at = blockIdx.x * kThreads + threadIdx.x;
  const float weight = weights[at];  // nobody writes it
  wait_for_launch_ahead();
  let_dependents_begin();
  out[at] = weight * in[at];
}

struct Group {
  const float* rows;
  int count;
};

// Where each group's rows begin, and how many it has.
__global__ void lay_out(const int* counts, const float* rows, Group* groups) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  int before = 0;
  for (unsigned each = 0; each < threadIdx.x; ++each) before += counts[each];
  groups[threadIdx.x] = {rows + before, counts[threadIdx.x]};
}
// The table of groups is what the launch ahead has written (cutlass#2760 had no wait; #2962 read
// the first group before it).
__global__ void of_groups(const Group* groups, float* out) {
  // ahead of the wait
  asm volatile("griddepcontrol.wait;" ::: "memory");  // groups
  Group mine = groups[blockIdx.x];
  float sum = 0;
  for (int at = threadIdx.x; at < mine.count; at += kThreads) sum += mine.rows[at];
  out[blockIdx.x * kThreads + threadIdx.x] = sum;
}

template <typename... Parameters, typename... Arguments>
cudaError_t dependent(cudaStream_t stream, void (*kernel)(Parameters...), Arguments... arguments) {
  cudaLaunchConfig_t config = {};
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.gridDim = kGroups;
  config.blockDim = kThreads;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

template <typename T>
T* zeros(int count) {
  T* made = nullptr;
  cudaMalloc(&made, count * sizeof(T));
  cudaMemset(made, 0, count * sizeof(T));
  return made;
}

}  // namespace

int main() {
  const int filled[kGroups] = {64, 0, 100};
  float *in = zeros<float>(kCount), *weights = zeros<float>(kCount), *out = zeros<float>(kCount);
  char* packed = zeros<char>(kCount);
  int* counts = zeros<int>(kGroups);
  Group* groups = zeros<Group>(kGroups);
  CHECK(cudaMemcpy(counts, filled, sizeof filled, cudaMemcpyHostToDevice));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaDeviceSynchronize());
  CHECK(dependent(stream, quantize, in, packed));
  CHECK(dependent(stream, multiply, packed, weights, out));
  CHECK(cudaDeviceSynchronize());
  lay_out<<<1, kGroups, 0, stream>>>(counts, in, groups);
  CHECK(dependent(stream, of_groups, groups, out));
  CHECK(cudaDeviceSynchronize());
  return 0;
}
