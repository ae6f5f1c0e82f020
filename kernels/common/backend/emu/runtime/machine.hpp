// What runs: threads in warps in CTAs in clusters of one launch (PTX ISA 9.1, 2.2), each with the
// state that the units of the hardware keep for it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "access_log.hpp"
#include "barrier.hpp"
#include "polls.hpp"
#include "ptx/types.cuh"
#include "shadow.hpp"
#include "tensor_state.hpp"
#include "tma_state.hpp"
#include "wait.hpp"

namespace kb::emu {

class Runner;
struct Fiber;

// A thread's last access to shared memory of another CTA of its cluster.
struct AccessAfar {
  uint32_t rank = 0;  // of that CTA
  uint32_t epoch = 0;
  uint64_t arrivals = 0;  // the thread's on the cluster barrier before
  bool writing = false;
  Pc pc = nullptr;
  const char* what = "";
};

// PTX: 2.1: %tid, %laneid; .local memory and registers are the fiber's stack.
struct Thread {
  Cta* cta = nullptr;
  uint32_t index = 0;  // in the CTA
  uint32_t lane = 0;
  Warp* warp = nullptr;
  uint32_t component = 0;
  Fiber* fiber = nullptr;
  bool exited = false;
  Wait wait;
  Knowledge knows;
  Clock passed_by;                  // what its acquires at CTA scope did not take from other CTAs
  Pc passed_by_pc = nullptr;        // the last of them
  Abroad::Pointer observed;         // what its atomics have seen released, with no fence since
  Abroad::Pointer passed_narrowly;  // and what at a scope that does not reach it
  Abroad::Pointer fenced;           // what its last fence at GPU scope releases by an atomic
  Abroad::Pointer fenced_narrowly;  // and its last one at narrow_scope
  Scope narrow_scope = Scope::kCta;
  uint32_t fence_epoch = 0;       // after the fence at GPU scope
  uint32_t accessed = 0;          // of its last plain access to global memory
  const void* loaded = nullptr;   // by its last plain load of a translated kernel
  uint32_t loads_again = 0;       // and how often in a row
  uint64_t cluster_arrivals = 0;  // generation after the last arrival on the cluster barrier
  uint64_t cluster_waits = 0;     // and after the last wait for it
  Polls polls;
  uint32_t spins = 0;  // of its strong accesses, those that livelock.cpp has seen; the last
  Look spin;
  uint32_t decisions = 0;  // of its own (choices.hpp)
  ThreadTma tma;           // of tma.cpp
  uint32_t arrived = 0;    // its epoch at its last arrival at an mbarrier
  std::vector<AccessAfar> afar;
  void sleep();  // until its warp is woken
};

// PTX: 2.1: 32 threads with consecutive %tid. They run in lock-step nowhere but in .sync
// instructions.
struct Warp {
  Cta* cta = nullptr;
  uint32_t index = 0;
  Thread* threads = nullptr;  // 32, or fewer in the last warp
  uint32_t count = 0;
  uint32_t exited = 0;                  // lanes
  uint32_t asleep = 0;                  // lanes that cannot run until they are woken
  uint32_t number = 0;                  // among the warps that one OS thread runs
  uint32_t waiting[Wait::kKinds] = {};  // of those asleep, by what they wait for
  void wake(uint32_t lanes = ~0u);
  std::deque<Collective> collectives;
  std::deque<Collective> gathered;  // by activemask, for each place in the code
  uint32_t pipe_epoch[2] = {};      // per Pipe
  uint32_t registers = 0;           // of a thread, as setmaxnreg has set them; 0: as launched
  WarpTensor tensor;                // of tcgen05.cpp and wgmma.cpp
};

inline uint32_t all_lanes(const Warp& warp) {
  return warp.count == kWarpSize ? ~0u : (1u << warp.count) - 1;
}

// PTX: 2.2.1: threads that share .shared memory and barriers, on one SM.
struct Cta {
  Cluster* cluster = nullptr;
  uint32_t rank = 0;  // in the cluster
  CtaIndex index = {};
  std::byte* shared = nullptr;        // kMaxSharedBytes, between guard pages
  uint32_t shared_bytes = 0;          // of the kernel
  const char* shared_type = nullptr;  // what shared_storage<T>() was asked for
  std::vector<Thread> threads;
  std::deque<Warp> warps;
  NamedBarrier named[16];
  CtaTensor tensor;                       // TMEM; of tcgen05.cpp
  CtaTma tma;                             // of tma.cpp
  std::unique_ptr<Shadow> shared_shadow;  // null when not checking
  std::unique_ptr<Shadow> tmem_shadow;
  std::vector<std::byte> async_view;   // shared memory as the async proxy last saw it,
  std::vector<uint8_t> async_differs;  // for the 4-byte cells marked here
  uint32_t live_threads = 0;
  uint32_t pending = 0;                 // tasks submitted and not run
  bool triggered = false;               // griddepcontrol.launch_dependents
  std::vector<uint16_t> barrier_index;  // by offset / 8; 0: none, else index + 1 into `barriers`
  std::deque<Barrier> barriers;

  bool exited() const { return live_threads == 0; }
  // Those that wait for something of that kind.
  void wake(Wait::Kind kind) {
    for (Warp& warp : warps) {
      warp.wake(std::exchange(warp.waiting[static_cast<uint32_t>(kind)], 0));
    }
  }
  // The barrier at an offset; a finding (kBarrierState) that ends the launch if there is none, or
  // if its initialization is not visible to the running thread. `remote`: reached from another CTA,
  // by multicast or by a commit.
  Barrier& barrier(uint32_t offset, Pc pc, bool remote = false);
  // The same for what the async proxy completes there: a finding if no fence stands between the
  // initialization and `what`.
  Barrier& async_barrier(uint32_t offset, Pc pc, bool remote, const char* what);
};

// PTX: 2.2.2: CTAs that are resident together and reach each other's shared memory.
struct Cluster {
  Launch* launch = nullptr;
  uint32_t id = 0;  // in the grid of clusters
  std::deque<Cta> ctas;
  std::byte* shared_base = nullptr;  // CTA r's shared memory is at shared_base + r * kSharedStride
  uint32_t live_threads = 0;
  ClusterBarrier barrier;
  std::vector<Event> grid_waits;  // griddepcontrol.wait, where a thread did not know of another's
  uint32_t components = 0;        // of its clocks
  uint32_t next_copy = 0;         // slot
  AccessLog accesses;             // that its shadows refer to
  uint64_t random_state = 0;
  // Uniform in [0, bound); deterministic for a seed, launch and cluster.
  uint32_t random(uint32_t bound);
  Cta& cta(uint32_t rank) { return ctas[rank]; }
};

// PTX: 2.2.3: a grid: clusters that start in any order and do not wait for each other, unless it is
// cooperative.
// One kernel launch; shared by OS threads.
struct Launch {
  Launch() = default;
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
  CtaIndex grid = {};
  uint32_t threads = 0;
  uint32_t cluster = 1;         // CTAs
  CtaIndex extent = {1, 1, 1};  // of a cluster
  uint32_t shared_bytes = 0;
  bool cooperative = false;
  bool together = false;  // clusters are interleaved once CTAs are seen to count or to wait
  // An atomic has returned a value of global memory: what a CTA does may depend on others.
  std::atomic<bool> interacts = false;
  uint64_t number = 0;  // since kb_emu_configure
  uint64_t serial = 0;  // since the process began
  std::function<void()> body;
  CtaIndex block = {};           // of translated PTX
  const void* kernel = nullptr;  // likewise
  // Grids of other operations of a program whose clusters are interleaved with these, and have the
  // ids behind theirs; and the launch that has them.
  std::vector<std::unique_ptr<Launch>> beside;
  Launch* whole = this;
  uint32_t first_cluster = 0;
  uint32_t clusters() const { return grid.x * grid.y * grid.z / cluster; }
  Launch& grid_of(uint32_t cluster_id);
  // Whether that is the serial of one of the grids that run now.
  bool runs(uint64_t of) const {
    return of == serial || (!whole->beside.empty() && whole->runs_beside(of));
  }
  bool runs_beside(uint64_t of) const;
  // Whether that is the operation of another one of them.
  bool is_beside(const StreamOperation* other) const;
  // The index of a CTA, by its cluster's id and its rank there.
  CtaIndex cta_index(uint32_t cluster_id, uint32_t rank) const;
  uint32_t os_threads = 1;
  // Grids of the stream from these serials on may still run (grids.cpp): for a thread that does not
  // know of a griddepcontrol.wait, and for one that does. Its own serial: none.
  uint64_t open_unwaited = 0;
  uint64_t open_waited = 0;
  uint64_t open_strictly = 0;            // without Assumption::kTriggersHandOn
  StreamOperation* operation = nullptr;  // of a program that it is part of (operations.cpp)
  void* stream = nullptr;
  uint64_t streams_since = 0;  // grids of other streams from this serial on may run; its own: none
  std::atomic<bool> waited = false;
  std::atomic<bool> triggered = false;
  std::atomic<bool> started_after_wait = false;  // of a CTA: the trigger of dependents
  // Cluster Launch Control: the id of a cluster that has not started and now never will, or -1.
  // Declines at random now and then when checking, and shares the rest out among running clusters.
  int64_t cancel_next_cluster();
  // The id of the next cluster to start, or -1; `only_first`: of those that start at once.
  int64_t next_cluster(bool only_first);
  // Of those that start at once the lowest, if that is below `id`; or -1.
  int64_t next_cluster_below(uint32_t id, const Runner& runner);
};

// The thread that runs. There is always one while kernel code runs.
Thread& self();

// A pointer into shared memory of a CTA of the running cluster. Anything else ends the launch.
struct SharedPlace {
  Cta* cta;
  uint32_t offset;
};
SharedPlace shared_place(const void* pointer, Pc pc, const char* what);
// From a shared::cluster address (rank << 24 | kSharedBase + offset).
SharedPlace shared_place(uint32_t address, Pc pc, const char* what);
uint32_t shared_address(const SharedPlace& place);

}  // namespace kb::emu
