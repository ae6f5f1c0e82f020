// What a launch does as kernelbench/predict replays it: a record for each primitive of a warp's
// lane 0, and for each arrival, copy, MMA and atomic of any lane. Waits and arrivals name barrier
// and phase, so that the records are a graph of dependencies. Models nothing of PTX by itself.
#pragma once

#include "options.hpp"

namespace kb::emu {

// Mirrored in kernelbench/predict/trace.py and replay.cpp.
enum class Op : uint8_t {
  kLaunch,           // a: CTAs; b: threads, cluster << 16; c: shared bytes; x: whether dependent
  kArrive,           // a: barrier; b: phase; c: By
  kWait,             // a: barrier; b: phases that are over
  kLoad,             // a: address; b: bytes; c: mask of CTAs; x: rows (0: none in bounds), kWritten
  kStore,            // a: bytes
  kCommitGroup,      //
  kWaitGroup,        // a: groups that may be pending; b: only the reads
  kBarrier,          // a: number; b: generation; x: whether it waits
  kMma,              // a: M; b: N; c: CTAs
  kTmemCopy,         //
  kTensorCommit,     //
  kTmemLoad,         // a: registers a lane
  kTmemWait,         //
  kTmemStore,        // a: registers a lane
  kClusterArrive,    // a: cluster; b: generation
  kClusterWait,      // a: cluster; b: generation
  kMapPublish,       //
  kMapAcquire,       //
  kTryCancel,        //
  kReduce,           // a: word, 0: of floats; b: its version
  kAtomic,           // a: word; b: its version
  kWordWait,         // a: word; b: its version
  kAccesses,         // a: passes of shared loads, of stores << 32; b: global loads, sectors of
                     // stores << 32; c: sectors of loads; x: number of a path of code, 0: none
  kShuffle,          //
  kFence,            // a: Scope
  kAsyncCopy,        // a: address; b: bytes a lane; x: kWritten
  kAsyncCommit,      //
  kAsyncWait,        // a: groups that may be pending
  kWarpgroupMma,     // a: N; b: whether A is in registers; c: whether it adds to sums
  kWarpgroupCommit,  //
  kWarpgroupWait,    // a: groups that may be pending
  kGridWait,         // griddepcontrol.wait
  kGridTrigger,      // griddepcontrol.launch_dependents
  kDenseMma,         // tcgen05.mma but for FP4
};
// Of bytes that the call has written before: they are in L2.
constexpr uint32_t kWritten = 1u << 31;
// Who arrives at a barrier.
enum class By : uint8_t { kThread, kCopy, kTensor, kLaunchControl, kAsyncCopies };

// Off but for launches between kb_emu_time and kb_emu_configure; those run on one OS thread,
// without the checker.
[[gnu::visibility("hidden")]] extern bool timing;
[[gnu::visibility("hidden")]] extern By arrives;

void timed_record(Op op, Pc pc, uint64_t a, uint64_t b, uint32_t c, uint32_t x, bool any_lane);
// `any_lane`: recorded of other lanes than 0, too.
inline void timed(Op op, Pc pc, uint64_t a = 0, uint64_t b = 0, uint32_t c = 0, uint32_t x = 0,
                  bool any_lane = false) {
  if (timing) timed_record(op, pc, a, b, c, x, any_lane);
}
// An ordinary load or store of the kernel's code.
void timed_access(const void* pointer, size_t bytes, bool writing, Pc pc);
// The thread ends: what its warp did last has no primitive behind it.
void timed_end(const Thread& thread);
// How often a word in global memory has been changed; `change`: once more.
void timed_word(Op op, Pc pc, const void* word, bool change);
// The next cluster that a cluster takes over: equal shares, as tiles of equal cost would be taken.
uint32_t timed_share(uint32_t cluster, uint32_t slots, bool first);
// Of a barrier's initialization.
uint64_t timed_serial();
void forget_timing();

struct ArrivalBy {
  By before = arrives;
  explicit ArrivalBy(By now) {
    if (timing) arrives = now;
  }
  ~ArrivalBy() {
    if (timing) arrives = before;
  }
};

}  // namespace kb::emu
