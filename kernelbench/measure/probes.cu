// Probes of the device: clock stamps, a spin, a read-only floor, an empty kernel.
//
// Every host function takes the device ordinal and a raw stream, enqueues without synchronizing,
// may be captured into a CUDA graph once kb_probe_init has run, and returns a cudaError_t;
// kb_probe_error() then holds a message for the calling thread.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace {

thread_local char g_error[256] = "";

cudaError_t report(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    std::snprintf(g_error, sizeof(g_error), "%s: %s (%s)", what, cudaGetErrorString(status),
                  cudaGetErrorName(status));
    cudaGetLastError();  // a failed launch must not be blamed on the next one
  }
  return status;
}

#define KB_TRY(call)                                   \
  do {                                                 \
    const cudaError_t status_ = report((call), #call); \
    if (status_ != cudaSuccess) return int(status_);   \
  } while (0)

// ------------------------------------------------------------------ clock stamps

constexpr uint32_t kStampSlots = 512;

// Counter pair of one SM. ns == 0: no CTA ran on that SM.
struct alignas(16) Stamp {
  uint64_t cycles;
  uint64_t ns;
};

__device__ uint64_t global_ns() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
  return ns;
}

__device__ uint64_t sm_cycles() {
  uint64_t cycles;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
  return cycles;
}

__global__ void stamp_kernel(Stamp* slots) {
  // globaltimer advances in steps of up to a microsecond: pairing clock64 with the *edge* of a
  // step makes the pair good to a few dozen cycles. The bound only guards against a stopped timer.
  constexpr int kMaxPolls = 1 << 14;
  uint32_t sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  const uint64_t before = global_ns();
  Stamp stamp{sm_cycles(), before};
  for (int i = 0; i < kMaxPolls && stamp.ns == before; ++i) {
    stamp = {sm_cycles(), global_ns()};
  }
  if (sm < kStampSlots) {
    // One 16-byte store: a second CTA on this SM must not mix its pair with ours.
    *reinterpret_cast<ulonglong2*>(&slots[sm]) = make_ulonglong2(stamp.cycles, stamp.ns);
  }
}

// ------------------------------------------------------------------ spins

__global__ void spin_cycles_kernel(uint64_t cycles) {
  const uint64_t start = sm_cycles();
  while (sm_cycles() - start < cycles) {
  }
}

__global__ void spin_ns_kernel(uint64_t ns) {
  const uint64_t start = global_ns();
  while (global_ns() - start < ns) {
  }
}

__global__ void empty_kernel() {}

// ------------------------------------------------------------------ read-only floor

__device__ uint32_t fold(uint4 v) {
  return v.x ^ v.y ^ v.z ^ v.w;
}

// Bulk copies of kChunkBytes into a ring of kStages: 192 KB in flight per SM, several times what
// Little's law asks for. Warp 0 issues; warp 1 samples the first 512 bytes of each chunk, so that
// the checksum shows that every chunk has landed, and frees its stage.
constexpr uint32_t kChunkBytes = 16 * 1024;
constexpr uint32_t kStages = 12;
constexpr uint32_t kRingBytes = kStages * kChunkBytes;
constexpr int kBulkThreads = 64;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ uint32_t shared_address(const void* p) {
  return uint32_t(__cvta_generic_to_shared(p));
}

__device__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done = 0;
  while (!done) {
    asm volatile(
        "{\n"
        "  .reg .pred p;\n"
        "  mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "  selp.u32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

__device__ void bulk_load(uint32_t destination, const char* source, uint32_t bytes,
                          uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(destination),
      "l"(source), "r"(bytes), "r"(barrier)
      : "memory");
}

__global__ void __launch_bounds__(kBulkThreads, 1)
    read_bulk_kernel(const char* __restrict__ data, uint64_t bytes, uint32_t* checksum) {
  extern __shared__ __align__(128) char ring[];
  __shared__ __align__(8) uint64_t full[kStages];
  __shared__ __align__(8) uint64_t empty[kStages];
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (uint32_t s = 0; s < kStages; ++s) {
      barrier_init(shared_address(&full[s]), 1);    // the issuing thread, with its byte count
      barrier_init(shared_address(&empty[s]), 32);  // every lane of the sampling warp
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  const uint64_t chunks = (bytes + kChunkBytes - 1) / kChunkBytes;
  const auto length = [&](uint64_t chunk) {
    const uint64_t rest = bytes - chunk * kChunkBytes;
    return uint32_t(rest < kChunkBytes ? rest : kChunkBytes);
  };
  uint32_t sum = 0;
  uint32_t stage = 0;
  uint32_t phase = 0;
  if (warp == 0 && lane == 0) {
    for (uint64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
      // A fresh barrier counts as having completed the phase before its first: parity 1 passes.
      barrier_wait(shared_address(&empty[stage]), phase ^ 1);
      const uint32_t barrier = shared_address(&full[stage]);
      barrier_expect(barrier, length(chunk));
      bulk_load(shared_address(ring) + stage * kChunkBytes, data + chunk * kChunkBytes,
                length(chunk), barrier);
      if (++stage == kStages) stage = 0, phase ^= 1;
    }
  } else if (warp == 1) {
    for (uint64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
      barrier_wait(shared_address(&full[stage]), phase);
      if (lane * sizeof(uint4) < length(chunk)) {
        sum ^= fold(
            *reinterpret_cast<const uint4*>(ring + stage * kChunkBytes + lane * sizeof(uint4)));
      }
      barrier_arrive(shared_address(&empty[stage]));
      if (++stage == kStages) stage = 0, phase ^= 1;
    }
    for (int step = 16; step > 0; step /= 2) sum ^= __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0) atomicXor(checksum, sum);
  }
}

#else

// Never launched: the host refuses the bulk form below compute capability 9.0.
__global__ void read_bulk_kernel(const char*, uint64_t, uint32_t*) {}

#endif

// Vector form: kUnroll 16-byte loads in flight per thread, every byte folded into the checksum.
constexpr int kVectorThreads = 512;
constexpr int kUnroll = 8;

__device__ uint4 load_no_allocate(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

__global__ void __launch_bounds__(kVectorThreads)
    read_vector_kernel(const uint4* __restrict__ data, uint64_t count, uint32_t* checksum) {
  constexpr uint64_t kTile = uint64_t(kVectorThreads) * kUnroll;
  uint32_t sum = 0;
  for (uint64_t tile = blockIdx.x * kTile; tile < count; tile += gridDim.x * kTile) {
    const uint64_t first = tile + threadIdx.x;
    uint4 v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const uint64_t i = first + uint64_t(u) * kVectorThreads;
      v[u] = i < count ? load_no_allocate(data + i) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) sum ^= fold(v[u]);
  }
  for (int step = 16; step > 0; step /= 2) sum ^= __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) atomicXor(checksum, sum);
}

// ------------------------------------------------------------------ host side

// Makes the device current for one call and gives the caller's back.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    status_ = cudaGetDevice(&previous_);
    if (status_ == cudaSuccess && previous_ != device) status_ = cudaSetDevice(device);
    changed_ = status_ == cudaSuccess && previous_ != device;
  }
  ~DeviceGuard() {
    if (changed_) cudaSetDevice(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  cudaError_t status() const { return status_; }

 private:
  int previous_ = 0;
  bool changed_ = false;
  cudaError_t status_;
};

cudaError_t sm_count(int device, int* count) {
  return cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device);
}

cudaError_t has_bulk_copies(int device, bool* has) {
  int major = 0;
  const cudaError_t status =
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  *has = major >= 9;
  return status;
}

}  // namespace

extern "C" {

const char* kb_probe_error() {
  return g_error;
}

int kb_probe_stamp_slots() {
  return int(kStampSlots);
}

// Loads every kernel (a lazy load inside a capture would spoil it) and reports the SM count.
int kb_probe_init(int device, int* sms, int* bulk) {
  const DeviceGuard guard(device);
  KB_TRY(guard.status());
  KB_TRY(sm_count(device, sms));
  bool has_bulk = false;
  KB_TRY(has_bulk_copies(device, &has_bulk));
  *bulk = has_bulk;
  cudaFuncAttributes attributes;
  KB_TRY(cudaFuncGetAttributes(&attributes, stamp_kernel));
  KB_TRY(cudaFuncGetAttributes(&attributes, spin_cycles_kernel));
  KB_TRY(cudaFuncGetAttributes(&attributes, spin_ns_kernel));
  KB_TRY(cudaFuncGetAttributes(&attributes, empty_kernel));
  KB_TRY(cudaFuncGetAttributes(&attributes, read_vector_kernel));
  KB_TRY(cudaFuncGetAttributes(&attributes, read_bulk_kernel));
  if (has_bulk) {
    KB_TRY(cudaFuncSetAttribute(read_bulk_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                int(kRingBytes)));
  }
  return 0;
}

// slots: Stamp[kb_probe_stamp_slots()] in device memory, 16-byte aligned, zeroed by the caller.
int kb_probe_stamp(int device, void* slots, void* stream) {
  const DeviceGuard guard(device);
  KB_TRY(guard.status());
  int sms = 0;
  KB_TRY(sm_count(device, &sms));
  stamp_kernel<<<sms, 1, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<Stamp*>(slots));
  KB_TRY(cudaGetLastError());
  return 0;
}

int kb_probe_spin_cycles(int device, uint64_t cycles, void* stream) {
  const DeviceGuard guard(device);
  KB_TRY(guard.status());
  spin_cycles_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(cycles);
  KB_TRY(cudaGetLastError());
  return 0;
}

int kb_probe_spin_ns(int device, uint64_t ns, void* stream) {
  const DeviceGuard guard(device);
  KB_TRY(guard.status());
  spin_ns_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(ns);
  KB_TRY(cudaGetLastError());
  return 0;
}

int kb_probe_empty(int device, void* stream) {
  const DeviceGuard guard(device);
  KB_TRY(guard.status());
  empty_kernel<<<1, 32, 0, static_cast<cudaStream_t>(stream)>>>();
  KB_TRY(cudaGetLastError());
  return 0;
}

// data: 16-byte aligned, bytes a multiple of 16. checksum: one uint32, XORed into.
int kb_probe_read_bulk(int device, const void* data, uint64_t bytes, void* checksum, void* stream) {
  const DeviceGuard guard(device);
  KB_TRY(guard.status());
  bool has_bulk = false;
  KB_TRY(has_bulk_copies(device, &has_bulk));
  if (!has_bulk)
    return int(report(cudaErrorNotSupported, "bulk copies need compute capability 9.0"));
  int sms = 0;
  KB_TRY(sm_count(device, &sms));
  read_bulk_kernel<<<sms, kBulkThreads, kRingBytes, static_cast<cudaStream_t>(stream)>>>(
      static_cast<const char*>(data), bytes, static_cast<uint32_t*>(checksum));
  KB_TRY(cudaGetLastError());
  return 0;
}

int kb_probe_read_vector(int device, const void* data, uint64_t bytes, void* checksum,
                         void* stream) {
  const DeviceGuard guard(device);
  KB_TRY(guard.status());
  int sms = 0;
  KB_TRY(sm_count(device, &sms));
  constexpr int kBlocksPerSm = 4;
  read_vector_kernel<<<sms * kBlocksPerSm, kVectorThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<const uint4*>(data), bytes / sizeof(uint4), static_cast<uint32_t*>(checksum));
  KB_TRY(cudaGetLastError());
  return 0;
}

}  // extern "C"
