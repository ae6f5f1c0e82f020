// Right versions, written small, of what published kernels got wrong: barriers of a grid, of a CTA,
// shared scratch, a flag that publishes, a chain of dependent launches.
#include <cuda_runtime.h>

#include "check.h"

namespace {

constexpr int kThreads = 128, kBlocks = 4, kCount = kThreads * kBlocks;
constexpr int kBins = 32, kRounds = 2;

__device__ unsigned load_acquire(const unsigned* from) {
  unsigned value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ void store_release(unsigned* to, unsigned value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ unsigned add_release(unsigned* to, unsigned value) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(to), "r"(value)
               : "memory");
  return before;
}

// A barrier of the grid, used twice: the counter only grows (flashinfer#3615 set it back while CTAs
// still waited for its last value).
__global__ void two_phases(unsigned* arrived, int* data, int* out) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  for (unsigned round = 1; round <= kRounds; ++round) {
    data[at] = at * static_cast<int>(round);
    __syncthreads();
    if (threadIdx.x == 0) {
      const unsigned all = round * gridDim.x;
      add_release(arrived, 1);
      while (load_acquire(arrived) < all) {
      }
    }
    __syncthreads();
    out[at] = data[(at + kThreads) % kCount];
    __syncthreads();
    if (threadIdx.x == 0) {
      const unsigned all = round * gridDim.x;
      add_release(arrived + 1, 1);
      while (load_acquire(arrived + 1) < all) {
      }
    }
    __syncthreads();
  }
}

// All threads reach the barrier, also those that have no element (flashinfer#2996).
__global__ void tail(const int* in, int* out, int count) {
  __shared__ int tile[kThreads];
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x] = at < count ? in[at] : 0;
  __syncthreads();  // tail
  if (at < count) out[at] = tile[kThreads - 1 - threadIdx.x];
}

// A histogram in rounds: it is cleared when all have read it (flashinfer#3529).
__global__ void histograms(const int* in, int* out) {
  __shared__ int bins[kBins];
  for (int round = 0; round < kRounds; ++round) {
    if (threadIdx.x < kBins) bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[in[threadIdx.x + round * kThreads] % kBins], 1);
    __syncthreads();
    const int mine = bins[threadIdx.x % kBins];
    __syncthreads();  // before it is cleared
    out[threadIdx.x + round * kThreads] = mine;
  }
}

// Sums of warps in one scratch, twice (sglang#32467 wrote it for the second sum while the first was
// still added up).
__global__ void two_sums(const int* in, int* out) {
  __shared__ int scratch[kThreads / 32];
  for (int round = 0; round < kRounds; ++round) {
    int sum = in[threadIdx.x + round * kThreads];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = sum;
    __syncthreads();
    int all = 0;
    for (const int each : scratch) all += each;
    __syncthreads();  // before the next sum
    out[threadIdx.x + round * kThreads] = all;
  }
}

// One thread publishes what all of its CTA have written (flashinfer#4092).
__global__ void publish(int* data, unsigned* flag, int* out) {
  if (blockIdx.x == 0) {
    data[threadIdx.x] = threadIdx.x;
    __syncthreads();  // all have written
    if (threadIdx.x == 0) store_release(flag, 1);
    return;
  }
  if (threadIdx.x == 0) {
    while (load_acquire(flag) == 0) {
    }
  }
  __syncthreads();
  out[threadIdx.x] = data[threadIdx.x];
}

// Three dependent launches: the scale of the row before, its use, a transform in place
// (llama.cpp#23690, flash-attention#2481, flashinfer#4199).
__global__ void scales(const float* in, float* scale) {
  cudaTriggerProgrammaticLaunchCompletion();
  scale[blockIdx.x] = in[blockIdx.x * kThreads] + 1;
}
__global__ void apply(const float* in, const float* scale, float* out) {
  const int at = blockIdx.x * kThreads + threadIdx.x;
  const float mine = in[at];        // nobody writes it
  cudaGridDependencySynchronize();  // apply
  cudaTriggerProgrammaticLaunchCompletion();
  out[at] = mine * scale[blockIdx.x];
}
__global__ void transform(float* data) {
  __shared__ float tile[kThreads];
  cudaGridDependencySynchronize();  // transform
  const int at = blockIdx.x * kThreads + threadIdx.x;
  tile[threadIdx.x] = data[at];
  __syncthreads();
  const float other = tile[threadIdx.x ^ 1];
  data[at] = threadIdx.x % 2 == 0 ? tile[threadIdx.x] + other : other - tile[threadIdx.x];
}

template <typename... Parameters, typename... Arguments>
cudaError_t dependent(cudaStream_t stream, void (*kernel)(Parameters...), Arguments... arguments) {
  cudaLaunchConfig_t config = {};
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.gridDim = kBlocks;
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
  int *in = zeros<int>(kCount), *out = zeros<int>(kCount), *data = zeros<int>(kCount);
  unsigned* arrived = zeros<unsigned>(2);
  unsigned* flag = zeros<unsigned>(1);
  float *row = zeros<float>(kCount), *scale = zeros<float>(kBlocks), *scaled = zeros<float>(kCount);
  two_phases<<<kBlocks, kThreads>>>(arrived, data, out);
  CHECK(cudaDeviceSynchronize());
  tail<<<kBlocks, kThreads>>>(in, out, kCount - 40);
  histograms<<<1, kThreads>>>(in, out);
  two_sums<<<1, kThreads>>>(in, out);
  publish<<<2, kThreads>>>(data, flag, out);
  CHECK(cudaDeviceSynchronize());
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  scales<<<kBlocks, kThreads, 0, stream>>>(row, scale);
  CHECK(dependent(stream, apply, row, scale, scaled));
  CHECK(dependent(stream, transform, scaled));
  CHECK(cudaDeviceSynchronize());
  return 0;
}
