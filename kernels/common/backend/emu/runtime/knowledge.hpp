// Who knows of which events: vector clocks, and the actors that they belong to. An event happened
// before another, in the sense of the memory consistency model (PTX ISA 9.1, chapter 8), if the
// later actor's clock covers it. knowledge.cpp has the definitions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "api_core.hpp"
#include "options.hpp"

namespace kb::emu {

// An event: epoch of a component of the cluster's clocks.
struct Event {
  uint32_t component = 0;
  uint32_t epoch = 0;
};

// Clocks have as many components as whole parts of so many have: a warp's threads, mostly.
constexpr uint32_t kClockPart = 32;

// A vector clock over the cluster's components: its threads, each warp's tensor pipe and TMEM
// loads, and slots for copies in flight.
struct Clock {
  std::vector<uint32_t> at;
  void join(const Clock& other);
  // Of the components from `begin` to `end` only.
  void join(const Clock& other, uint32_t begin, uint32_t end);
  bool covers(uint32_t component, uint32_t epoch) const { return at[component] >= epoch; }
};

// What is known of the events of clusters: the clock of each that has released something at the
// scope of the GPU, as it was then. Never changed once it is made, so that who knows the same
// shares it.
class Abroad {
 public:
  using Pointer = std::shared_ptr<const Abroad>;  // null: nothing
  static Pointer of(uint32_t cluster, const Clock& seen);
  static Pointer joined(const Pointer& left, const Pointer& right);
  // Null if nothing is known of the cluster.
  const Clock* clock(uint32_t cluster) const;
  bool covers(uint32_t cluster, uint32_t component, uint32_t epoch) const;
  // Whether something is known of a cluster from `first` to before `last`.
  bool any_of(uint32_t first, uint32_t last) const;
  // What is known of those below the limit; null for nothing.
  Pointer below(uint32_t limit) const;
  // The highest number below the limit; 0 if there is none.
  uint32_t highest_below(uint32_t limit) const;
  // The same with numbers below the limit counted from `begin`.
  Pointer renumbered(uint32_t limit, uint32_t begin) const;

 private:
  struct Entry {
    uint32_t cluster;
    std::shared_ptr<const Clock> seen;
  };
  std::vector<Entry>::const_iterator from(uint32_t cluster) const;
  std::vector<Entry> entries_;  // by cluster
};

// What somebody knows: which events happened before (seen), which generic writes the async proxy
// will see (published: those seen at a fence.proxy.async that happened before), and which events of
// other clusters happened before (abroad). `grouped`: wgmma operations as parts of other warps that
// have happened if one warp's wait speaks for its warpgroup; empty for none.
// In translated PTX also what would be known if more counted: `unfenced`, beside `seen`, if
// tcgen05.fence stood wherever it may, waits for mbarriers acquired at cluster scope, and lanes
// that meet at a .sync.aligned instruction knew what each had done; `supposed`, beside `abroad`, if
// a fence at GPU scope counted for whoever is behind its thread, for which `covered` has what such
// fences have covered, those at the scope of the system in `of_system`, and `observed` what atomics
// have seen released with no such fence since.
// Empty for nothing.
struct Knowledge {
  Clock seen;
  Clock published;
  Clock grouped;
  Clock unfenced;
  Abroad::Pointer abroad;
  Abroad::Pointer supposed;
  Abroad::Pointer covered;
  Abroad::Pointer of_system;
  Abroad::Pointer observed;
  void join(const Knowledge& other) {
    seen.join(other.seen);
    published.join(other.published);
    if (!other.grouped.at.empty()) grouped.join(other.grouped);
    if (!other.unfenced.at.empty()) unfenced.join(other.unfenced);
    join_abroad(other);
  }
  void join_abroad(const Knowledge& other) {
    join(abroad, other.abroad);
    join(supposed, other.supposed);
    join(covered, other.covered);
    join(of_system, other.of_system);
    join(observed, other.observed);
  }
  // Nothing is known any more; the memory is kept for what comes next.
  void clear() {
    std::fill(seen.at.begin(), seen.at.end(), 0);
    std::fill(published.at.begin(), published.at.end(), 0);
    grouped.at.clear();
    unfenced.at.clear();
    abroad = supposed = covered = of_system = observed = nullptr;
  }

 private:
  static void join(Abroad::Pointer& mine, const Abroad::Pointer& other) {
    if (other != nullptr && other != mine) mine = Abroad::joined(mine, other);
  }
};

// What an object knows that many acquire, again and again as it grows: each joins what has grown
// since it did last. Of a copy they may join it likewise.
struct Growing : Knowledge {
  uint32_t version = 0;
  std::vector<uint32_t> grown;  // of each part, the version in which it did last

  void join(const Knowledge& other);
  // `taken`: the version that `to` has joined before, 0 for none; of `to` nothing is forgotten.
  void hand_to(Knowledge& to, uint32_t& taken) const;

 private:
  void join(Clock& mine, const Clock& other);
};

// Who accesses memory: a thread, or an asynchronous operation on its behalf.
struct Actor {
  const Knowledge* knows = nullptr;
  uint32_t component = 0;
  uint32_t epoch = 0;
  bool async = false;         // through the async proxy
  bool tensor = false;        // tcgen05 pipe or wgmma
  bool atomic = false;        // needs no order with other atomic accesses that its scope reaches
  Scope scope = Scope::kGpu;  // of an atomic
  bool returns = false;       // an atomic that returns what was there
  bool same = false;          // a store of what is there
  bool cached = false;        // a load by a cache that no write of the launch reaches
  uint8_t bytes = 0xf;        // of each 4-byte cell, as a mask
  int32_t thread = -1;        // in the CTA
  uint32_t cta_rank = 0;
  Pc pc = nullptr;
  const char* what = "";  // "TMA load", "store", "tcgen05.mma", …
  // Atomic, and takes nothing of what was there.
  bool overwrites() const { return std::string_view(what) == "a strong store"; }
};
// A thread as a generic actor, which its epoch stands for: it changes when the thread releases.
Actor generic_actor(const Thread& thread, Pc pc, const char* what);
Actor generic_actor(Pc pc, const char* what);  // the running one
// Whether two components of a cluster's clocks are lanes of one warp.
bool lanes_of_one_warp(const Cta& cta, uint32_t component, uint32_t other);

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
// The component and epoch of one more copy of the running cluster.
Event copy_slot();
// A copy: unordered with the issuer's other operations.
AsyncActor copy_actor(Pc pc, const char* what);
// Operations that one warp's threads issue complete in order within `pipe`.
enum class Pipe : uint32_t { kTensor = 0, kTmemLoad = 1 };
AsyncActor pipe_actor(Pipe pipe, Pc pc, const char* what);
// The component of a warp's operations in `pipe`: the n-th one is epoch n.
uint32_t pipe_component(const Warp& warp, const Cta& cta, Pipe pipe);

// Release and acquire on a synchronization object's knowledge; no-ops when not checking.
void release_to(Knowledge& object);
void acquire_from(const Knowledge& object);

}  // namespace kb::emu
