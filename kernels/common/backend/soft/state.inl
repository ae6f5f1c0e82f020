// What the soft executor keeps outside the kernel: tensor memory, who has allocated it, the
// clusters not yet handed out, and a record of what went wrong. The host's launch fills it in
// (rt.inl).
#pragma once

namespace kb::soft {

inline constexpr uint32_t kTmemLanes = 128;
inline constexpr uint32_t kTmemColumns = 512;
inline constexpr uint32_t kTmemUnit = 32;  // columns: the smallest allocation
inline constexpr uint32_t kTmemUnits = kTmemColumns / kTmemUnit;
inline constexpr uint32_t kMaxN = 256;

// Long for a wait, so that a product in software never looks like a hang.
inline constexpr uint64_t kWaitLimitNs = 20'000'000'000;

// What ends a launch. The comments say what Record::value holds.
enum class Fault : uint32_t {
  kNone,
  kMbarrierWait,     // offset in shared memory, parity
  kGlobalWait,       // value waited for, value seen
  kAllocationWait,   // columns
  kAllocationSize,   // columns
  kAllocationGrows,  // columns, columns of the allocation before
  kAfterRelinquish,  // columns
  kDeallocation,     // address, columns
  kColumns,          // address, columns: outside what is allocated
  kLanes,            // address: not of the warp
  kAddressDiffers,   // address in this lane, in lane 0
  kScaleAddress,     // address
  kScaleReplicas,    // column, lane of the first replica
  kInstruction,      // descriptor
  kSmemDescriptor,   // low word, high word
  kSeveralLanes,     // mask of lanes
  kRequestAfterDecline,
  kPeerBarrier,  // address of the barrier
};

// One fault, in page-locked host memory: it can still be read when the context is lost.
struct Record {
  Fault fault;  // written last
  uint32_t cta;
  uint32_t thread;
  uint32_t value[2];
};

// A CTA's allocations, in units of 32 columns.
struct Allocations {
  uint32_t taken;              // bit u: unit u
  uint32_t units[kTmemUnits];  // of the allocation that starts at unit u; 0: none
  uint32_t last;               // columns of the newest allocation
  uint32_t relinquished;
  uint32_t declined;  // a request for a cluster has been seen to fail
};

// A column of B as the product wants it: codes as signed bytes of twice their value, and scales.
struct alignas(16) DecodedColumn {
  uint32_t codes[16];
  float scales[4];
};

// A CTA's tensor memory, row by row, and room for the B of one product.
struct Slab {
  uint32_t tmem[kTmemLanes][kTmemColumns];
  DecodedColumn columns[kMaxN];
};

struct State {
  Slab* slabs;               // per CTA of the launched grid
  Allocations* allocations;  // likewise
  uint32_t* next_cluster;    // not yet handed out
  uint32_t* failing;         // non-zero once a thread writes the record
  Record* record;
  uint32_t clusters;  // of the grid that was asked for
  CtaIndex grid;      // that was asked for; the launched one may be a prefix of it
};

static __constant__ State state;

KB_DEVICE uint32_t linear_cta() {
  return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
}

KB_DEVICE uint64_t now_ns() {
  uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time)::"memory");
  return time;
}

// Ends the launch. The first thread to fail says why; the others wait for the end, so that they do
// not bring it before the record is written.
[[noreturn]] inline __device__ __noinline__ void fail(Fault fault, uint32_t value = 0,
                                                      uint32_t other = 0) {
  if (atomicExch(state.failing, 1) == 0) {
    volatile Record* record = state.record;
    record->cta = linear_cta();
    record->thread = threadIdx.x;
    record->value[0] = value;
    record->value[1] = other;
    __threadfence_system();
    *reinterpret_cast<volatile uint32_t*>(&state.record->fault) = static_cast<uint32_t>(fault);
    __threadfence_system();
    __trap();
  }
  while (true) __nanosleep(1'000'000);
}

}  // namespace kb::soft
