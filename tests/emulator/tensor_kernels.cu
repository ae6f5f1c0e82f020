// Kernels for the emulator's tensor core: each executes a list of operations that the test gives
// it, so that addresses, descriptors and expected results come from the test's own model. A fault
// is something that the kernel does wrong on purpose.
#include "entry.cuh"
#include "ptx/cluster.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tcgen05.cuh"
#include "ptx/warp.cuh"
#include "wait.cuh"

using namespace kb;

namespace {

enum Fault : int {
  kRight = 0,
  kNoProxyFence,    // operands written by ordinary stores without fence.proxy.async
  kNoCommitWait,    // the accumulator is read before the commit was observed
  kNoWaitLd,        // registers are used before wait::ld
  kNoWaitSt,        // loads follow stores without wait::st
  kOverwriteTile,   // operands are overwritten before the commit was observed
  kOverwriteSums,   // the next mma does not wait for the loads of the last result
  kEveryLane,       // all lanes issue
  kOtherCommits,    // a thread that issued nothing commits
  kLeak,            // no dealloc
  kEarlyDealloc,    // dealloc before all loads are known to be complete
  kWrongDealloc,    // of other columns
  kWrongSlab,       // a warp loads another warp's lanes
  kUnequalAddress,  // lanes pass different addresses
  kUnequalScales,   // one copy of the scale factors differs
  kAllocGrows,      // a second allocation is larger
  kAllocRelinquished,
  kAllocNotPower,
  kAllocBlocked,      // more columns than there are: waits for ever
  kMixedGroups,       // cta_group 1 and 2
  kPairOneAllocates,  // one CTA of the pair does not allocate
  kSecondRound,       // no fault: the operations again, when all have loaded
  kLoadAtOnce,        // no fault: each warp also loads behind its own stores, without fences
  kNoFenceBefore,     // in the second round, without tcgen05.fence::before_thread_sync
  kStoreTooEarly,     // columns of an operation are stored to before its commit was observed
  kNoFenceAfter,      // without tcgen05.fence::after_thread_sync before the loads
};

enum Kind : uint32_t { kCopy, kMultiply, kCommit };

// An operation; starts of descriptors count from the image.
struct Operation {
  uint64_t a, b;
  uint32_t kind, d, instruction, scales_a, scales_b, accumulate;
};

// Everything per CTA is one after another.
struct Program {
  const uint8_t* image;  // into shared memory
  const Operation* operations;
  const uint32_t* fill;  // [128][columns], or null
  uint32_t* out;         // [loads][128 threads][registers]
  uint32_t operation_count;
  uint32_t commits;       // among them
  uint32_t columns;       // allocated
  uint32_t load_column;   // of the first load
  uint32_t store_column;  // of the store that is too early
  uint32_t loads;
  int32_t shape;
  int32_t fault;
};

constexpr uint32_t kImageBytes = 96 * 1024;
constexpr uint32_t kRegisters = 16;  // of one load

struct SharedStorage {
  alignas(1024) uint8_t image[kImageBytes];
  Mbarrier done[2];  // a commit names the one that it arrives on
  uint32_t tmem;
};

template <int kCtas>
KB_DEVICE void issue(SharedStorage& storage, const Program& program, ptx::CtaGroup<kCtas> group) {
  const uint64_t base = (ptx::smem_address(storage.image) & 0x3ffff) >> 4;
  for (uint32_t i = 0; i < program.operation_count; ++i) {
    const Operation& each = program.operations[i];
    if (each.kind == kCopy) {
      ptx::tcgen05_cp_32x128b_warpx4(group, storage.tmem + each.d, each.a + base);
    } else if (each.kind == kMultiply) {
      ptx::tcgen05_mma_mxf4nvf4_block_scale_4x(
          group, storage.tmem + each.d, each.a + base, each.b + base, each.instruction,
          storage.tmem + each.scales_a, storage.tmem + each.scales_b, each.accumulate != 0);
    } else if (kCtas == 2) {
      ptx::tcgen05_commit(group, &storage.done[each.d], ClusterMask{3});
    } else {
      ptx::tcgen05_commit(group, &storage.done[each.d]);
    }
  }
}

KB_DEVICE void fill(const Program& program, uint32_t tmem, uint32_t rank) {
  if (program.fill == nullptr) return;
  const uint32_t lane = ptx::thread_index() % 128;
  const uint32_t* row = program.fill + (rank * 128 + lane) * program.columns;
  for (uint32_t column = 0; column < program.columns; column += kRegisters) {
    uint32_t values[kRegisters];
    for (uint32_t r = 0; r < kRegisters; ++r) values[r] = row[column + r];
    // One of the scale factors' four copies.
    if (program.fault == kUnequalScales && ptx::warp_index() == 2) values[0] ^= 1;
    ptx::tcgen05_st_32x32b(tmem + (ptx::warp_index() * 32 << 16) + column, values);
  }
  if (program.fault != kNoWaitSt) ptx::tcgen05_wait_st();
}

KB_DEVICE void load(const Program& program, uint32_t tmem, uint32_t rank) {
  uint32_t lane = ptx::warp_index() * 32;
  if (program.fault == kWrongSlab && ptx::warp_index() == 1) lane = 64;
  if (program.shape >= 10) lane += 16;  // the upper half
  for (uint32_t i = 0; i < program.loads; ++i) {
    const uint32_t width = program.shape == 0 ? kRegisters : 2 * kRegisters;
    uint32_t address = tmem + (lane << 16) + program.load_column + i * width;
    if (program.fault == kUnequalAddress && ptx::lane_index() == 7) ++address;
    uint32_t values[kRegisters];
    if (program.shape == 0) {
      ptx::tcgen05_ld_32x32b(values, address);
    } else if (program.shape % 10 == 1) {
      ptx::tcgen05_ld_16x64b(values, address);
    } else {
      ptx::tcgen05_ld_16x256b(values, address);
    }
    if (program.fault != kNoWaitLd) ptx::tcgen05_wait_ld(values);
    const uint32_t thread = ptx::thread_index();
    uint32_t* out = program.out + ((rank * program.loads + i) * 128 + thread) * kRegisters;
    for (uint32_t r = 0; r < kRegisters; ++r) out[r] = values[r];
    if (program.fault == kNoWaitLd) ptx::tcgen05_wait_ld();
  }
}

template <int kCtas>
KB_DEVICE void allocate(SharedStorage& storage, const Program& program, ptx::CtaGroup<kCtas> group,
                        uint32_t rank) {
  if (program.fault == kPairOneAllocates && rank == 1) return;
  const bool odd = program.fault == kAllocNotPower;
  ptx::tcgen05_alloc(group, &storage.tmem, odd ? 48 : program.columns);
  if (program.fault == kAllocGrows) ptx::tcgen05_alloc(group, &storage.tmem, 2 * program.columns);
  if (program.fault == kAllocBlocked) ptx::tcgen05_alloc(group, &storage.tmem, program.columns);
  ptx::tcgen05_relinquish_alloc_permit(group);
  if (program.fault == kAllocRelinquished) {
    ptx::tcgen05_alloc(group, &storage.tmem, program.columns);
  }
}

template <int kCtas>
KB_GLOBAL void interpret(Program program) {
  auto& storage = shared_storage<SharedStorage>();
  constexpr ptx::CtaGroup<kCtas> kGroup;
  const uint32_t warp = ptx::warp_index();
  const uint32_t rank = kCtas == 2 ? ptx::cluster_ctarank() : 0;
  const int fault = program.fault;
  if (ptx::thread_index() == 0) {
    ptx::mbarrier_init(&storage.done[0], 1);
    ptx::mbarrier_init(&storage.done[1], 1);
    ptx::fence_mbarrier_init_release_cluster();
  }
  if (warp == 0) allocate(storage, program, kGroup, rank);
  for (uint32_t i = ptx::thread_index(); i < kImageBytes / 4; i += 128) {
    reinterpret_cast<uint32_t*>(storage.image)[i] =
        reinterpret_cast<const uint32_t*>(program.image + rank * kImageBytes)[i];
  }
  if (fault != kNoProxyFence) ptx::fence_proxy_async(ptx::space_shared_cta);
  ptx::bar_sync();
  const uint32_t tmem = storage.tmem;
  fill(program, tmem, rank);
  if (fault == kLoadAtOnce) load(program, tmem, rank);
  ptx::tcgen05_fence_before_thread_sync();
  ptx::bar_sync();
  if (kCtas == 2) {
    ptx::barrier_cluster_arrive(ptx::sem_release);
    ptx::barrier_cluster_wait(ptx::sem_acquire);
  }
  ptx::tcgen05_fence_after_thread_sync();
  if (warp == 0 && rank == 0) {
    if (fault == kEveryLane) {
      issue(storage, program, kGroup);
    } else if (ptx::elect_sync()) {
      issue(storage, program, kGroup);
      if (fault == kMixedGroups) ptx::tcgen05_commit(ptx::CtaGroup<3 - kCtas>{}, &storage.done[0]);
      // By the lane that was elected: of another one it is a race with the issue, too.
      if (fault == kOverwriteTile) storage.image[0] = 0;
    }
  }
  if (fault == kOtherCommits && ptx::thread_index() == 33) {
    ptx::tcgen05_commit(kGroup, &storage.done[0]);
  }
  if (fault == kStoreTooEarly && warp == 1) {
    const uint32_t values[1] = {};
    ptx::tcgen05_st_32x32b(tmem + (32 << 16) + program.store_column, values);
    ptx::tcgen05_wait_st();
    ptx::tcgen05_fence_before_thread_sync();
  }
  if (fault != kNoCommitWait) {
    for (uint32_t commit = 0; commit < program.commits; ++commit) {
      mbarrier_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &storage.done[commit], 0);
    }
  }
  if (fault != kNoFenceAfter) ptx::tcgen05_fence_after_thread_sync();
  load(program, tmem, rank);
  if (fault != kNoFenceBefore) ptx::tcgen05_fence_before_thread_sync();
  if (fault == kOverwriteSums || fault == kSecondRound || fault == kNoFenceBefore) {
    if (fault != kOverwriteSums) ptx::bar_sync();
    ptx::tcgen05_fence_after_thread_sync();
    if (warp == 0 && ptx::elect_sync()) issue(storage, program, kGroup);
    mbarrier_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &storage.done[0], 1);
  }
  if (fault != kEarlyDealloc) ptx::bar_sync();
  if (kCtas == 2) {
    ptx::barrier_cluster_arrive(ptx::sem_release);
    ptx::barrier_cluster_wait(ptx::sem_acquire);
  }
  if (warp == 0 && fault != kLeak) {
    ptx::tcgen05_dealloc(kGroup, tmem, fault == kWrongDealloc ? 32 : program.columns);
  }
}

}  // namespace

KB_EXPORT int run_program(const Program* program, int pair, char* message) {
  try {
    rt::LaunchConfig config{.grid = {pair ? 2u : 1u, 1, 1},
                            .threads = 128,
                            .shared_bytes = sizeof(SharedStorage),
                            .cluster = pair ? 2u : 1u};
    rt::launch(pair ? interpret<2> : interpret<1>, config, *program);
  } catch (const std::exception& error) {
    snprintf(message, 256, "%s", error.what());
    return 1;
  }
  return 0;
}
