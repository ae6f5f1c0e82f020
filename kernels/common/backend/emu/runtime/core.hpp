// The emulator's core: threads as fibers, warps, CTAs and clusters, what a thread knows of the
// others (vector clocks), the shadow of memory that finds races, asynchronous operations, findings.
// Kernels see none of this: their ptx functions call the api_*.hpp functions.
//
// One cluster runs on one OS thread. Switching happens only inside these functions, so everything
// here is sequential per cluster; what clusters share (global memory, Launch) is noted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "facts.hpp"
#include "ptx/types.cuh"
#include "tensor_state.hpp"
#include "tma_state.hpp"

namespace kb::emu {

// Where in the step's library an operation was called; the reader maps it to file and line.
using Pc = const void*;
#define KB_EMU_PC (__builtin_extract_return_addr(__builtin_return_address(0)))

inline constexpr uint32_t kWarpSize = 32;
// As on the hardware, shared memory starts at 1024 of its window.
inline constexpr uint32_t kSharedBase = 0x400;
inline constexpr uint32_t kMaxSharedBytes = 232448;
// From one CTA's shared memory to the next in the host's memory; what is between them faults.
inline constexpr size_t kSharedStride = 512 * 1024;
// Copies whose completion the clocks tell apart at one time; beyond that slots are reused, which
// can hide a race between two copies but never invents one.
inline constexpr uint32_t kCopySlots = 64;

struct Thread;
struct Warp;
struct Cta;
struct Cluster;
struct Launch;

// ---- options -------------------------------------------------------------------------------

// Set by the loader before a launch (kb_emu_configure); plain data, mirrored in Python.
struct Options {
  uint32_t sms = 148;
  uint32_t os_threads = 0;  // 0: one per core
  uint32_t check = 0;       // 1: shadow memory, adversarial schedules
  uint32_t mma_rounding =
      0;                     // 0: fp32 FMA; 1: the hardware's model (35 fractional bits, truncated)
  uint32_t broken_fact = 0;  // a Fact, to prove that the kernels' tests see it
  uint32_t max_findings = 64;
  uint32_t limit_ms = 0;  // of a launch; 0: none
  uint64_t seed = 0;
};
const Options& options();
// Whether the checker is on. Without it asynchronous operations complete where they are issued.
bool checking();

// ---- findings ------------------------------------------------------------------------------

// What went wrong. The names in findings.cpp are the reader's vocabulary.
enum class Class : uint8_t {
  kHang,              // nothing can run and nothing is pending, or the launch lasts too long
  kRace,              // two accesses, one a write, without order between them
  kEarlyRead,         // bytes of a copy or accumulator read before its completion was observed
  kOverwrite,         // bytes overwritten while an asynchronous operation or a reader needs them
  kProxyFence,        // generic write not made visible to the async proxy
  kTensorMapProxy,    // tensor map used without acquiring its last change
  kArrivalCount,      // more arrivals than the phase expects
  kTransactionCount,  // bytes expected and bytes completed do not match
  kPhase,             // a waiter is two phases off
  kBarrierState,      // barrier used before its initialization is visible, or overwritten, or
                      // reinitialized
  kNamedBarrier,      // participants disagree or are missing
  kDivergence,        // lanes of a warp do not execute a collective operation together
  kTmemAllocation,    // allocated, freed or leaked wrongly
  kTmemBounds,        // outside the allocation, or another warp's lanes
  kDescriptor,        // descriptor or instruction field that the hardware does not take
  kAlignment,
  kOutOfBounds,  // memory that no buffer owns, or beyond shared memory
  kExit,         // CTA exits with operations in flight or peers that need it
  kCrash,        // segmentation fault or stack overflow in the kernel's code
  kOrder,        // e.g. a commit by a thread that issued nothing
  kUnwritten,    // shared or tensor memory read before anything was written there
};

// One finding, before the reader resolves addresses. Repeats (same class, pc, other_pc) are
// counted.
struct Finding {
  Class kind;
  Pc pc = nullptr;             // the access or call at fault
  Pc other_pc = nullptr;       // the one that it conflicts with
  int64_t shared_offset = -1;  // of the object, from the start of SharedStorage
  int64_t tmem_column = -1;
  int32_t other_thread = -1;
  std::string text;  // one sentence; no addresses
};
// Records a finding of the running thread (or of no thread) and goes on.
void report(Finding finding);
// Records a finding and ends the launch; does not return to the kernel.
[[noreturn]] void fail(Finding finding);

// ---- knowledge -----------------------------------------------------------------------------

// A vector clock over the cluster's components: its threads, each warp's tensor pipe and TMEM
// loads, and slots for copies in flight.
struct Clock {
  std::vector<uint32_t> at;
  void join(const Clock& other);
  bool covers(uint32_t component, uint32_t epoch) const { return at[component] >= epoch; }
};

// What somebody knows: which events happened before (seen), and which generic writes the async
// proxy will see (published: those seen at a fence.proxy.async that happened before).
struct Knowledge {
  Clock seen;
  Clock published;
  void join(const Knowledge& other) {
    seen.join(other.seen);
    published.join(other.published);
  }
};

// Who accesses memory: a thread, or an asynchronous operation on its behalf.
struct Actor {
  const Knowledge* knows = nullptr;
  uint32_t component = 0;
  uint32_t epoch = 0;
  bool async = false;   // through the async proxy
  bool tensor = false;  // tcgen05 pipe or wgmma
  bool atomic = false;  // needs no order with other atomic accesses
  uint8_t bytes = 0xf;  // of each 4-byte cell, as a mask
  int32_t thread = -1;  // in the CTA
  uint32_t cta_rank = 0;
  Pc pc = nullptr;
  const char* what = "";  // "TMA load", "store", "tcgen05.mma", …
};
// The running thread as a generic actor.
Actor generic_actor(Pc pc, const char* what);

// An asynchronous operation of the running thread, as an actor of its own. Its knowledge is the
// issuer's at the issue plus itself. `complete` of a barrier or group hands it on.
// Slots are those of copies; in-order pipes use pipe_actor.
struct AsyncActor {
  Knowledge knows;
  Actor actor;  // actor.knows is set by `get`
  const Actor& get() {
    actor.knows = &knows;
    return actor;
  }
};
// A copy: unordered with the issuer's other operations.
AsyncActor copy_actor(Pc pc, const char* what);
// Operations that one warp's threads issue complete in order within `pipe`.
enum class Pipe : uint32_t { kTensor = 0, kTmemLoad = 1 };
AsyncActor pipe_actor(Pipe pipe, Pc pc, const char* what);

// Release and acquire on a synchronization object's knowledge; no-ops when not checking.
void release_to(Knowledge& object);
void acquire_from(const Knowledge& object);

// ---- shadow memory -------------------------------------------------------------------------

// Last writer and readers of each cell. Reports accesses without order.
class Shadow {
 public:
  enum class Space : uint8_t { kShared, kTmem };
  Shadow(Cta& cta, Space space, uint32_t cells);
  void read(uint32_t first, uint32_t count, const Actor& actor);
  void write(uint32_t first, uint32_t count, const Actor& actor);
  // Reports a read of cells that nothing has written; `read` calls it where that is a fault.
  void check_written(uint32_t first, uint32_t count, const Actor& actor);
  // Whether the last write of a cell is visible to the async proxy.
  bool published(uint32_t cell, const Actor& actor) const;
  void reset();

 private:
  void check_writer(uint32_t cell, uint32_t writer, const Actor& actor, bool reading);
  void check_readers(uint32_t cell, uint32_t reader, const Actor& actor);
  bool check_writer_record(uint32_t cell, uint32_t record, const Actor& actor, bool reading);
  uint32_t add_reader(uint32_t previous, uint32_t record, const Actor& actor);
  uint32_t add_writer(uint32_t previous, const Actor& actor);
  Cta& cta_;
  Space space_;
  std::vector<uint32_t> writer_;  // index of a Record or a set of them; 0: none
  std::vector<uint32_t> reader_;
};

// Accesses of an async operation or a primitive to shared memory, checked at its issue. Offsets are
// from the start of the CTA's shared memory. No-ops when not checking, but for bounds, which always
// count: beyond the kernel's shared_bytes is a finding that ends the launch.
//
// shared_read returns the 4-byte cells that the async proxy does not see up to date (empty for
// generic actors and almost always); hand them to shared_async_bytes.
using StaleCells = std::vector<uint32_t>;
StaleCells shared_read(Cta& cta, uint32_t offset, uint32_t bytes, const Actor& actor);
void shared_write(Cta& cta, uint32_t offset, uint32_t bytes, const Actor& actor);
// Copies [offset, offset + bytes) as the async proxy sees it, when the operation executes.
void shared_async_bytes(const Cta& cta, uint32_t offset, uint32_t bytes, const StaleCells& stale,
                        void* out);

// Whether [pointer, pointer + bytes) lies in one registered global buffer; a finding that ends the
// launch if not. `what` names the access. Always checked. Loads of padding are not accesses.
void global_access(const void* pointer, size_t bytes, bool writing, Pc pc, const char* what);

// Notes that the running CTA writes there. Two CTAs that write the same bytes in one launch are a
// race, unless its CTAs meet (cooperative, or waiting for a counter).
void global_written(const void* pointer, size_t bytes, Pc pc, const char* what);
// Whether any CTA of this launch has written there. False when not checking.
bool written_in_launch(const void* pointer, size_t bytes);

// ---- threads, warps, CTAs, clusters --------------------------------------------------------

// Why a thread does not run. `object` is an offset in shared memory, a barrier number, …
struct Wait {
  enum class Kind : uint8_t {
    kNone,
    kMbarrier,
    kNamedBarrier,
    kWarp,
    kCluster,
    kBulkGroup,
    kTmemAlloc,
    kTmemLoad,
    kGlobal,
    kCopies,
    kWgmma,
    kYield,
  };
  Kind kind = Kind::kNone;
  Pc pc = nullptr;
  uint32_t object = 0;
  uint64_t value = 0;  // parity, groups that may be pending, …
  bool (*ready)(void*) = nullptr;
  void* context = nullptr;
};

// Suspends the running thread until `ready()` is true (checked now and whenever the scheduler
// looks). A thread that can never be ready is a hang.
void suspend(const Wait& wait);
template <typename Ready>
void wait_until(Wait::Kind kind, Pc pc, uint32_t object, uint64_t value, Ready ready) {
  if (ready()) return;
  suspend({kind, pc, object, value, [](void* f) { return (*static_cast<Ready*>(f))(); }, &ready});
}
// Where the checker may switch to another thread: primitives call it on entry.
void interleave();

// A collective operation of some lanes of a warp. The last lane to arrive runs `body`.
struct Collective {
  uint32_t members = 0;
  uint32_t arrived = 0;
  uint32_t generation = 0;
  const char* what = nullptr;
  Pc pc = nullptr;
  uint64_t value[kWarpSize] = {};
  uint64_t result[kWarpSize] = {};
};
// Every lane of `members` calls it with the same `what`; returns result[lane] after body has run.
// Lanes that execute something else, or have exited, make it a finding (kDivergence) or a hang.
uint64_t collective(const char* what, uint32_t members, uint64_t value, Pc pc,
                    const std::function<void(Collective&)>& body);
// A collective of the whole warp without values: `.sync.aligned` instructions.
void warp_collective(const char* what, Pc pc, const std::function<void()>& body);

struct Fiber;

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
  uint64_t cluster_arrivals = 0;  // generation after the last arrival on the cluster barrier
  uint64_t polls = 0;             // unsuccessful ones in a row
  ThreadTma tma;                  // of tma.cpp
};

struct Warp {
  Cta* cta = nullptr;
  uint32_t index = 0;
  Thread* threads = nullptr;  // 32, or fewer in the last warp
  uint32_t count = 0;
  std::deque<Collective> collectives;
  uint32_t pipe_epoch[2] = {};  // per Pipe
  WarpTensor tensor;            // of tcgen05.cpp and wgmma.cpp
};

// An mbarrier. The 8 bytes in shared memory hold nothing; this is the state.
struct Barrier {
  uint32_t offset = 0;
  bool live = false;
  uint32_t expected = 0;
  uint32_t pending = 0;
  int64_t tx = 0;
  uint64_t phase = 0;            // phases completed since its initialization
  uint64_t bytes_in_flight = 0;  // of copies issued towards it and not completed
  uint32_t owner = 0;            // component and epoch of the initialization
  uint32_t owner_epoch = 0;
  bool fenced = false;  // fence.mbarrier_init by its thread since
  Pc init_pc = nullptr;
  // The last arrival of a tcgen05.commit. Arrivals of two commits are in no order: knowing of the
  // later one, on another barrier, says nothing of this one.
  Event commit;
  Pc commit_pc = nullptr;
  Knowledge arriving;
  Knowledge completed;
  std::vector<int64_t> observed;  // per thread of the CTA: last phase waited for, -1 none
};

struct NamedBarrier {
  uint32_t expected = 0;
  uint32_t arrived = 0;
  uint64_t generation = 0;
  Pc pc = nullptr;
  Knowledge arriving;
  Knowledge completed;
};

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
  std::vector<uint16_t> barrier_index;  // by offset / 8; 0: none, else index + 1 into `barriers`
  std::deque<Barrier> barriers;

  bool exited() const { return live_threads == 0; }
  // The barrier at an offset; a finding (kBarrierState) that ends the launch if there is none, or
  // if its initialization is not visible to the running thread. `remote`: reached from another CTA,
  // by multicast or by a commit.
  Barrier& barrier(uint32_t offset, Pc pc, bool remote = false);
};

// One side of barrier.cluster.
struct ClusterBarrier {
  uint32_t arrived = 0;
  uint64_t generation = 0;
  Knowledge arriving;
  Knowledge completed;
};

struct Cluster {
  Launch* launch = nullptr;
  uint32_t id = 0;  // in the grid of clusters
  std::deque<Cta> ctas;
  std::byte* shared_base = nullptr;  // CTA r's shared memory is at shared_base + r * kSharedStride
  uint32_t live_threads = 0;
  ClusterBarrier barrier;
  uint32_t components = 0;  // of its clocks
  uint32_t next_copy = 0;   // slot
  uint64_t random_state = 0;
  // Uniform in [0, bound); deterministic for a seed, launch and cluster.
  uint32_t random(uint32_t bound);
  Cta& cta(uint32_t rank) { return ctas[rank]; }
};

// One kernel launch; shared by OS threads.
struct Launch {
  CtaIndex grid = {};
  uint32_t threads = 0;
  uint32_t cluster = 1;
  uint32_t shared_bytes = 0;
  bool cooperative = false;
  uint64_t number = 0;  // since kb_emu_configure
  uint64_t serial = 0;  // since the process began
  std::function<void()> body;
  bool meets = false;  // cooperative, or some thread has waited for a counter
  // Cluster Launch Control: the id of a cluster that has not started and now never will, or -1.
  // Declines at random now and then when checking, and shares the rest out among running clusters.
  int64_t cancel_next_cluster();
};

// The thread that runs. There is always one while kernel code runs.
Thread& self();

// ---- addresses -----------------------------------------------------------------------------

// A pointer into shared memory of a CTA of the running cluster. Anything else ends the launch.
struct SharedPlace {
  Cta* cta;
  uint32_t offset;
};
SharedPlace shared_place(const void* pointer, Pc pc, const char* what);
// From a shared::cluster address (rank << 24 | kSharedBase + offset).
SharedPlace shared_place(uint32_t address, Pc pc, const char* what);
uint32_t shared_address(const SharedPlace& place);

// ---- barriers ------------------------------------------------------------------------------

// Arrives on a barrier; `from` is what the arrival releases (null: relaxed).
void barrier_arrive(Barrier& barrier, uint32_t count, const Knowledge* from, Pc pc);
void barrier_expect_tx(Barrier& barrier, uint32_t bytes, Pc pc);
// A copy completes `bytes`; releases `from`.
void barrier_complete_tx(Barrier& barrier, uint32_t bytes, const Knowledge* from, Pc pc);

// ---- asynchronous operations ---------------------------------------------------------------

using Task = std::function<void()>;
// Runs `task` now, or, when checking, at a moment that the schedule draws. Unordered tasks run in
// any order; in-order ones after those of the same warp and pipe. A task runs on the scheduler: it
// must not suspend and self() is not valid inside. `outlives`: it may run after its CTA's exit.
void submit(Task task, bool outlives = false);
void submit_in_order(Pipe pipe, Task task);
// Runs everything that is pending in the running warp's pipe, then returns (e.g. for wait::ld).
bool pipe_idle(const Warp& warp, Pipe pipe);

// What must hold when a CTA exits (TMEM freed, groups waited for): called once per CTA,
// after its last thread has returned.
void check_tma_at_exit(Cta& cta);     // tma.cpp
void check_tensor_at_exit(Cta& cta);  // tcgen05.cpp
// Called when a CTA starts, on fresh state.
void start_tma(Cta& cta);     // tma.cpp
void start_tensor(Cta& cta);  // tcgen05.cpp

}  // namespace kb::emu
