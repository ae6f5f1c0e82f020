// Waiting: how a thread gives way, and operations that lanes of a warp execute together. The
// scheduler in runner.cpp asks what a thread waits for.
#pragma once

#include <cstdint>

#include "options.hpp"

namespace kb::emu {

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
    kShared,
    kRegisters,
    kYield,
  };
  static constexpr uint32_t kKinds = static_cast<uint32_t>(Kind::kYield) + 1;
  Kind kind = Kind::kNone;
  Pc pc = nullptr;
  uint32_t object = 0;
  uint64_t value = 0;  // parity, groups that may be pending, …
  // Asked by the scheduler as often as it likes: it must change nothing but what the wait itself
  // completes.
  bool (*ready)(void*) = nullptr;
  void* context = nullptr;
  bool polls = false;          // a loop of the kernel's own: the thread could also look again
  const void* word = nullptr;  // of kGlobal, if it is one
  // Whoever may make it true wakes the warp: until then nobody asks again.
  bool woken = false;
};

// Suspends the running thread until `ready()` is true (checked now and whenever the scheduler
// looks). A thread that can never be ready is a hang.
void suspend(const Wait& wait);
template <typename Ready>
void wait_until(Wait::Kind kind, Pc pc, uint32_t object, uint64_t value, Ready ready,
                const void* word = nullptr, bool woken = false) {
  if (ready()) return;
  const auto call = [](void* f) { return (*static_cast<Ready*>(f))(); };
  suspend({kind, pc, object, value, call, &ready, false, word, woken});
}
// As wait_until; whoever may make `ready()` true wakes the thread.
template <typename Ready>
void wait_until_woken(Wait::Kind kind, Pc pc, uint32_t object, uint64_t value, Ready ready) {
  wait_until(kind, pc, object, value, ready, nullptr, true);
}
// Where the checker may switch to another thread: primitives call it on entry.
// PTX promises no order between threads that do not synchronize: a schedule may stop a thread
// between any two instructions, which here is at the entry of every primitive.
void interleave();
// What the schedule decides for the running thread: true one time in n.
bool one_in(uint32_t n);

// What is called while its caller waits: a function that nobody copies.
template <typename... Given>
class Body {
 public:
  template <typename Function>
  Body(const Function& function)
      : function_(&function), call_([](const void* of, Given... given) {
          (*static_cast<const Function*>(of))(given...);
        }) {}
  void operator()(Given... given) const { call_(function_, given...); }

 private:
  const void* function_;
  void (*call_)(const void*, Given...);
};

// PTX: one execution of a .sync instruction by the lanes of a member mask; several with disjoint
// masks may be open in one warp.
// A collective operation of some lanes of a warp. The last lane to arrive runs `body`.
struct Collective {
  uint32_t members = 0;
  uint32_t arrived = 0;
  uint32_t generation = 0;
  bool excuses = false;  // lanes that have exited
  const char* what = nullptr;
  Pc pc = nullptr;
  uint64_t value[kWarpSize] = {};
  uint64_t result[kWarpSize] = {};
};
// PTX: .sync instructions wait for the threads of a member mask; .aligned ones need all threads of
// the warp at the same instruction.
// Every lane of `members` calls it with the same `what`; returns result[lane] after body has run.
// Lanes that execute something else, or have exited, make it a finding (kDivergence) or a hang;
// `excuses`: those that have exited do not.
uint64_t collective(const char* what, uint32_t members, uint64_t value, Pc pc,
                    Body<Collective&> body, bool excuses = false);
// A collective of the whole warp without values: `.sync.aligned` instructions.
void warp_collective(const char* what, Pc pc, Body<> body);
// Where a warp's lanes are together and PTX does not say that this orders memory: each has done
// what it did before, and what only that orders is formal in translated PTX.
void meet_aligned(Warp& warp);

}  // namespace kb::emu
