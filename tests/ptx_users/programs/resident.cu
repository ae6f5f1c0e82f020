// CTAs that meet by a counter in global memory: all of them have to reside at once.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cstdio>

#include "check.h"

namespace {

constexpr int kBlocks = 8, kThreads = 64;
constexpr size_t kShared = 120 << 10;  // one CTA an SM

__global__ void meet(unsigned* arrived, const int* in, int* out, int* between) {
  extern __shared__ int tile[];
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x] = in[at];
  between[at] = tile[threadIdx.x] + 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1);
    while (atomicAdd(arrived, 0) < gridDim.x) {
    }
    __threadfence();
  }
  __syncthreads();
  out[at] = between[(at + blockDim.x) % (gridDim.x * blockDim.x)];
}

__global__ void together(int* out) {
  cooperative_groups::this_grid().sync();
  out[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}

// A warpgroup gives registers back, and two others take them.
constexpr int kGroups = 3, kGroup = 128;
constexpr int kGives = 40;
constexpr int kGets = 208;

__global__ void __launch_bounds__(kGroups* kGroup, 1) share_registers(int* out) {
  if (threadIdx.x < kGroup) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kGives));
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kGets));
    out[threadIdx.x] = 1;
  }
  __syncthreads();  // who gives registers stays: those of warps that have exited are free
}

}  // namespace

int main() {
  unsigned* arrived;
  int *in, *out, *between, *wide;
  constexpr size_t kBytes = kBlocks * kThreads * sizeof(int);
  constexpr int kMany = 16;
  CHECK(cudaMalloc(&arrived, sizeof *arrived));
  CHECK(cudaMalloc(&in, kBytes));
  CHECK(cudaMalloc(&out, kBytes));
  CHECK(cudaMalloc(&between, kBytes));
  CHECK(cudaMalloc(&wide, kMany * kThreads * sizeof(int)));
  CHECK(cudaMemset(arrived, 0, sizeof *arrived));
  CHECK(cudaMemset(in, 0, kBytes));
  CHECK(cudaFuncSetAttribute(meet, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
  meet<<<kBlocks, kThreads, kShared>>>(arrived, in, out, between);
  CHECK(cudaDeviceSynchronize());
  share_registers<<<1, kGroups * kGroup>>>(wide);
  void* arguments[] = {&wide};
  cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(together), dim3(kMany), dim3(kThreads),
                              arguments);
  cudaDeviceSynchronize();
  return 0;
}
