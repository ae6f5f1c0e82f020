// Right versions, written small, of what published kernels got wrong with tensor memory (sm_100a).
#include <cuda_runtime.h>

#include <cstdint>

#include "check.h"
#include "mbarrier.h"

namespace {

// A: 128 rows, B: 64, of 16 bf16 each; tiles of 8 by 16 bytes lie 128 and 1,024 bytes apart.
constexpr int kM = 128, kN = 64, kABytes = kM * 128, kBBytes = kN * 128;
constexpr int kTurns = 3, kColumns = 128, kReaders = 128, kThreads = kReaders + 32;
constexpr uint32_t kKind = 1u << 4 | 1u << 7 | 1u << 10 | kN / 8 << 17 | kM / 16 << 24;

struct Tiles {
  alignas(1024) char a[kABytes];
  alignas(1024) char b[kBBytes];
  alignas(8) uint64_t a_full;
  alignas(8) uint64_t b_full;
  alignas(8) uint64_t stored;  // by all readers
  alignas(8) uint64_t full;    // the accumulators
  alignas(8) uint64_t empty;
  uint32_t column;
};

__device__ void bring(char* to, const char* from, int bytes, uint64_t* bar) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_of(bar)),
               "r"(bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(address_of(to)),
      "l"(from), "r"(bytes), "r"(address_of(bar))
      : "memory");
}
__device__ void before_others() {
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
__device__ void after_others() {
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}
__device__ void store_is_done() {
  asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
}
__device__ uint64_t descriptor(const char* tile) {
  return 8ull << 16 | 64ull << 32 | 1ull << 46 | address_of(tile) >> 4;
}
__device__ void multiply(uint32_t to, uint64_t a, uint64_t b) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, 0, 0;"
      " tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p; }" ::"r"(to),
      "l"(a), "l"(b), "r"(kKind)
      : "memory");
}
__device__ void multiply_stored(uint32_t to, uint32_t a, uint64_t b) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, 0, 0;"
      " tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, p; }" ::"r"(to),
      "r"(a), "l"(b), "r"(kKind)
      : "memory");
}
__device__ void commit(uint64_t* bar) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
                   address_of(bar))
               : "memory");
}
__device__ uint32_t rows_of_warp() {
  return threadIdx.x / 32 << 21;
}
__device__ float sum_of(uint32_t accumulators) {
  uint32_t part[4];
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3])
               : "r"(accumulators + rows_of_warp()));
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
  float sum = 0;
  for (const uint32_t each : part) sum += __uint_as_float(each);
  return sum;
}

// The last warp allocates, multiplies and frees; all meet before it frees.
__device__ void begin(Tiles& tiles) {
  if (threadIdx.x == kReaders) {
    init(&tiles.a_full, 1);
    init(&tiles.b_full, 1);
    init(&tiles.stored, kReaders);
    init(&tiles.full, 1);
    init(&tiles.empty, kReaders);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncwarp();
  if (threadIdx.x >= kReaders) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                     address_of(&tiles.column)),
                 "n"(kColumns)
                 : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
  }
  before_others();
  __syncthreads();
  after_others();
}
__device__ void end(uint32_t column) {
  before_others();
  __syncthreads();  // all have read
  after_others();
  if (threadIdx.x >= kReaders) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(column),
                 "n"(kColumns));
  }
}

// One A for several B, as queries are (DeepGEMM#285 did not wait for it). Accumulators are read and
// given back (tilelang#1980 had no fences around that; ThunderKittens freed them too early).
__global__ void products(const char* a, const char* b, float* out) {
  extern __shared__ char raw[];
  Tiles& tiles = *reinterpret_cast<Tiles*>(raw);
  begin(tiles);
  const uint32_t column = tiles.column;
  float sum = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    if (threadIdx.x == kReaders) {
      if (turn == 0) bring(tiles.a, a, kABytes, &tiles.a_full);
      if (turn > 0) wait(&tiles.empty, turn - 1 & 1);
      bring(tiles.b, b + turn * kBBytes, kBBytes, &tiles.b_full);
      if (turn == 0) wait(&tiles.a_full, 0);  // queries
      wait(&tiles.b_full, turn & 1);
      after_others();
      multiply(column, descriptor(tiles.a), descriptor(tiles.b));
      commit(&tiles.full);
    } else if (threadIdx.x < kReaders) {
      wait(&tiles.full, turn & 1);
      after_others();
      sum += sum_of(column);
      before_others();
      arrive(&tiles.empty);
    }
  }
  end(column);
  if (threadIdx.x < kReaders) out[threadIdx.x] = sum;
}

// A is stored in tensor memory, as probabilities are (flash-attention had no wait for the store).
__global__ void product_of_stored(const char* b, float* out) {
  extern __shared__ char raw[];
  Tiles& tiles = *reinterpret_cast<Tiles*>(raw);
  begin(tiles);
  const uint32_t column = tiles.column, stored = column + kN;
  float sum = 0;
  if (threadIdx.x == kReaders) {
    bring(tiles.b, b, kBBytes, &tiles.b_full);
    wait(&tiles.b_full, 0);
    wait(&tiles.stored, 0);
    after_others();
    multiply_stored(column, stored, descriptor(tiles.b));
    commit(&tiles.full);
  } else if (threadIdx.x < kReaders) {
    const uint32_t two = 0x3f803f80;
    asm volatile(
        "tcgen05.st.sync.aligned.32x32b.x8.b32 [%0], {%1, %1, %1, %1, %1, %1, %1, %1};" ::"r"(
            stored + rows_of_warp()),
        "r"(two)
        : "memory");
    store_is_done();  // probabilities
    before_others();
    arrive(&tiles.stored);
    wait(&tiles.full, 0);
    after_others();
    sum = sum_of(column);
  }
  end(column);
  if (threadIdx.x < kReaders) out[threadIdx.x] = sum;
}

char* zeros(int bytes) {
  char* made = nullptr;
  cudaMalloc(&made, bytes);
  cudaMemset(made, 0, bytes);
  return made;
}

}  // namespace

int main() {
  char *a = zeros(kABytes), *b = zeros(kTurns * kBBytes), *out = zeros(kReaders * 4);
  const int bytes = sizeof(Tiles);
  CHECK(cudaFuncSetAttribute(products, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  CHECK(
      cudaFuncSetAttribute(product_of_stored, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  products<<<1, kThreads, bytes>>>(a, b, reinterpret_cast<float*>(out));
  CHECK(cudaDeviceSynchronize());
  product_of_stored<<<1, kThreads, bytes>>>(b, reinterpret_cast<float*>(out));
  CHECK(cudaDeviceSynchronize());
  return 0;
}
