// Who knows of which events: vector clocks, and the actors that they belong to. An event happened
// before another, in the sense of the memory consistency model (PTX ISA 9.1, chapter 8), if the
// later actor's clock covers it. knowledge.cpp has the definitions.
#pragma once

#include <cstdint>
#include <vector>

#include "options.hpp"

namespace kb::emu {

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

}  // namespace kb::emu
