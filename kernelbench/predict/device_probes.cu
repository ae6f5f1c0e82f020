// What costs of a device's file take on the GPU at hand, in cycles of one operation on one SM.
//
// kb_model_probe runs a probe `reps` times, after one that is not kept, and returns a cudaError_t.

#include <cuda_runtime.h>

#include <cstdint>

namespace {

// In the order of PROBES in probes.py.
enum Probe {
  kLatencyL2,
  kLatencyHbm,
  kPortBytes,
  kGlobalLoad,
  kAtomic,
  kReduce,
  kShuffle,
  kFence,
  kClusterBarrier,
  kWord,
};
constexpr uint32_t kSteps = 256;
constexpr uint32_t kStride = 4096;  // so that no copy or load finds its line in the one before
// A thread starts a copy in more than 200 cycles: only large ones show how fast the port is.
constexpr uint32_t kStages = 8, kStageBytes = 24576;

struct Shared {
  alignas(128) char bytes[kStages][kStageBytes];
  uint64_t full[kStages];
};

__device__ uint64_t cycles() {
  uint64_t found;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(found)::"memory");
  return found;
}
__device__ uint32_t shared_address(const void* of) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(of));
}
__device__ void copy(void* to, const char* from, uint32_t bytes, uint64_t& full) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&full)),
      "r"(bytes)
      : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(&full))
      : "memory");
}
__device__ void wait(uint64_t& full, uint32_t phase) {
  uint32_t done = 0;
  while (!done) {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(shared_address(&full)), "r"(phase)
        : "memory");
  }
}

// One copy after the other, or as many at a time as the stages take.
__device__ void copies(Shared& shared, const char* data, uint32_t bytes, uint32_t at_a_time) {
  for (uint32_t i = 0; i < kSteps + at_a_time; ++i) {
    const uint32_t stage = i % at_a_time;
    if (i >= at_a_time) wait(shared.full[stage], (i / at_a_time - 1) & 1);
    const char* from = data + uint64_t{i % 64} * max(bytes, kStride);
    if (i < kSteps) copy(shared.bytes[stage], from, bytes, shared.full[stage]);
  }
}

template <Probe kProbe>
__device__ void operation(Shared& shared, const char* data, uint32_t* words) {
  const uint32_t lane = threadIdx.x;
  uint32_t value = 0;
  if (kProbe == kLatencyL2 && lane == 0) copies(shared, data, 128, 1);
  if (kProbe == kPortBytes && lane == 0) copies(shared, data, kStageBytes, kStages);
  if (kProbe == kLatencyHbm && lane == 0) {
    for (uint32_t i = 0; i < kSteps; ++i) {
      copy(shared.bytes[0], data + i * kStride, 128, shared.full[0]);
      wait(shared.full[0], i & 1);
    }
  }
  if (kProbe == kWord && lane == 0) {
    for (uint32_t i = 0; i < kSteps; ++i) {
      const uint32_t mine = 2 * i + blockIdx.x;
      while (value < mine) {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(words) : "memory");
      }
      asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(words), "r"(mine + 1) : "memory");
    }
  }
  for (uint32_t i = 0; i < kSteps; ++i) {
    if (kProbe == kGlobalLoad) {
      const char* at = data + (i * kStride + value) % (128 * kStride);
      asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    }
    if (kProbe == kAtomic && lane == 0) {
      asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %0;"
                   : "+r"(value)
                   : "l"(words)
                   : "memory");
    }
    if (kProbe == kReduce) {
      asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(words + 32 * (i % 64) + lane)
                   : "memory");
    }
    if (kProbe == kShuffle) value = __shfl_xor_sync(0xffffffff, value + lane, 1);
    if (kProbe == kFence) {
      asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(words + lane), "r"(i) : "memory");
      asm volatile("fence.acq_rel.gpu;" ::: "memory");
    }
    if (kProbe == kClusterBarrier) {
      asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
      asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    }
  }
  if (value == 0xffffffff) words[1] = value;  // so that it is not left out
}

template <Probe kProbe>
__global__ void __launch_bounds__(32) probe(const char* data, uint32_t* words, uint64_t* took) {
  extern __shared__ __align__(128) char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (uint64_t& full : shared.full) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full)));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncwarp();
  const uint64_t begin = cycles();
  operation<kProbe>(shared, data, words);
  if (blockIdx.x == 0 && threadIdx.x == 0) *took = cycles() - begin;
}

template <Probe kProbe>
cudaError_t run(const char* data, uint32_t* words, uint64_t* took, int reps) {
  const int bytes = sizeof(Shared);
  cudaError_t status =
      cudaFuncSetAttribute(probe<kProbe>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = 2;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = kProbe == kWord || kProbe == kClusterBarrier ? 2 : 1;
  launch.blockDim = 32;
  launch.dynamicSmemBytes = bytes;
  launch.attrs = &cluster;
  launch.numAttrs = kProbe == kClusterBarrier;
  for (int i = 0; status == cudaSuccess && i <= reps; ++i) {
    const char* from = data + (kProbe == kLatencyHbm ? uint64_t{kSteps} * kStride * i : 0);
    status = cudaMemset(words, 0, 4);
    if (status == cudaSuccess) {
      status = cudaLaunchKernelEx(&launch, probe<kProbe>, from, words, took + i);
    }
  }
  return status;
}

}  // namespace

extern "C" int kb_model_probe(int device, int which, int reps, uint64_t* cycles_of_all) {
  using Run = cudaError_t (*)(const char*, uint32_t*, uint64_t*, int);
  const Run all[] = {run<kLatencyL2>,      run<kLatencyHbm>, run<kPortBytes>, run<kGlobalLoad>,
                     run<kAtomic>,         run<kReduce>,     run<kShuffle>,   run<kFence>,
                     run<kClusterBarrier>, run<kWord>};
  const uint64_t bytes = uint64_t{kSteps} * kStride * (reps + 1) + (uint64_t{256} << 20);
  char* data = nullptr;
  uint32_t* words = nullptr;
  uint64_t* took = nullptr;
  cudaError_t status = cudaSetDevice(device);
  if (status == cudaSuccess) status = cudaMalloc(&data, bytes);
  if (status == cudaSuccess) status = cudaMalloc(&words, 65536);
  if (status == cudaSuccess) status = cudaMalloc(&took, 8 * (reps + 1));
  // From the front, so that the L2 is left with the end, which nothing reads.
  if (status == cudaSuccess) status = cudaMemset(data, 0, bytes);
  if (status == cudaSuccess) status = cudaMemset(words, 0, 65536);
  if (status == cudaSuccess) status = all[which](data, words, took, reps);
  if (status == cudaSuccess) {
    status = cudaMemcpy(cycles_of_all, took + 1, 8 * reps, cudaMemcpyDeviceToHost);
  }
  cudaFree(data);
  cudaFree(words);
  cudaFree(took);
  return status;
}
