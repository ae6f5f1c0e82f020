// Words by which threads and CTAs meet or count: what atomics, strong loads and strong stores of
// them release and acquire (PTX ISA 9.1, 8.7 to 8.9 and 9.7.13), and what a call leaves in them for
// the next.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "api_core.hpp"
#include "api_ptx.hpp"
#include "assumptions.hpp"
#include "global_shadow.hpp"
#include "operations.hpp"
#include "runner.hpp"
#include "timing.hpp"

namespace kb::emu {

namespace {

// What has been released at a scope below the GPU's.
struct Narrow {
  uint32_t cluster;
  uint32_t rank;
  Scope scope;
  Abroad::Pointer released;
};

// Of this launch.
struct Counter {
  Abroad::Pointer released;   // at the scope of the GPU
  Abroad::Pointer supposed;   // and what would be, too, if fences of other threads counted
  Abroad::Pointer of_system;  // of both, what is released at the scope of the system
  std::vector<Narrow> narrow;
  bool meeting = false;  // CTAs wait for a bit of it to change
  std::vector<Finding> deferred;
};

// Of all launches since the host has written the word.
struct Kept {
  uint32_t first = 0;    // what it held before the first atomic
  bool meeting = false;  // nothing has to be set back
};

struct HashOfWord {
  size_t operator()(const SyncWord& word) const {
    return std::hash<const void*>{}(word.at) ^ std::hash<const void*>{}(word.cta);
  }
};

std::mutex guard;
std::unordered_map<SyncWord, Counter, HashOfWord> counters;
std::map<const uint32_t*, Kept> kept;
// By which CTAs have waited or counted, for kb_emu_sync_words.
constexpr size_t kMostSyncWords = 4096;
std::set<const void*> sync_words;
uint64_t call_serial = 0;
// What each kernel of a program has found first of all in the words that it met, or what something
// else than a kernel has set them to since; and who has changed them before its last launch.
struct Met {
  uint32_t value;
  Pc changed_by = nullptr;
};
std::map<std::pair<const void*, const void*>, Met> met;
// Where stale words are set back, to see whether the program is right then; empty for everywhere.
std::optional<std::string> set_back_in;

// What the running thread releases: all that it knows by now.
Abroad::Pointer release(Thread& thread) {
  const Abroad::Pointer own = Abroad::of(thread.cta->cluster->id, thread.knows.seen);
  ++thread.knows.seen.at[thread.component];
  return Abroad::joined(thread.knows.abroad, own);
}

// What the last fence at GPU scope releases by an atomic: the atomic, too, if nothing came between
// them that the fence does not cover; but nothing that comes behind the atomic (PTX ISA 9.1, 8.8).
Abroad::Pointer release_by_fence(Thread& thread) {
  const uint32_t cluster = thread.cta->cluster->id;
  const Clock* covered = thread.fenced == nullptr ? nullptr : thread.fenced->clock(cluster);
  if (covered == nullptr || thread.accessed >= thread.fence_epoch) return thread.fenced;
  Clock own = *covered;
  own.at[thread.component] = thread.knows.seen.at[thread.component]++;
  return Abroad::joined(thread.fenced, Abroad::of(cluster, own));
}

// A word's counter, with what earlier launches of a program have released by the word; null if
// nobody has released anything.
Counter* known_counter(const SyncWord& word) {
  const auto found = counters.find(word);
  if (found != counters.end()) return &found->second;
  if (word.cta != nullptr || current_operation() == nullptr) return nullptr;
  const Released before = released_before(word.at);
  if (before.certain == nullptr && before.supposed == nullptr) return nullptr;
  Counter& counter = counters[word];
  counter.released = before.certain;
  counter.supposed = before.supposed;
  counter.of_system = before.of_system;
  return &counter;
}

// Events of the thread's own cluster are in its own clock.
void learn(Thread& thread, const Abroad::Pointer& released) {
  if (released == nullptr) return;
  if (const Clock* own = released->clock(thread.cta->cluster->id)) thread.knows.seen.join(*own);
  thread.knows.abroad = Abroad::joined(thread.knows.abroad, released);
}

// Under the guard.
void keep_for_later_launches() {
  std::vector<std::pair<const void*, Released>> kept_words;
  for (const auto& [word, counter] : counters) {
    if (word.cta != nullptr) continue;
    if (counter.released == nullptr && counter.supposed == nullptr) continue;
    kept_words.push_back({word.at, {counter.released, counter.supposed, counter.of_system}});
  }
  keep_released(kept_words, launch_serial());
}

bool reaches(const Narrow& narrow, const Cta& cta, Scope scope) {
  if (narrow.cluster != cta.cluster->id) return false;
  return narrow.rank == cta.rank || std::min(narrow.scope, scope) == Scope::kCluster;
}

void release_narrowly(Counter& counter, const Cta& cta, Scope scope, Abroad::Pointer what) {
  for (Narrow& each : counter.narrow) {
    if (each.cluster != cta.cluster->id || each.rank != cta.rank || each.scope != scope) continue;
    each.released = Abroad::joined(each.released, what);
    return;
  }
  counter.narrow.push_back({cta.cluster->id, cta.rank, scope, std::move(what)});
}

void release_at(Counter& counter, const Cta& cta, Scope scope, Abroad::Pointer what) {
  if (scope >= Scope::kGpu) {
    counter.released = Abroad::joined(counter.released, what);
  } else {
    release_narrowly(counter, cta, scope, std::move(what));
  }
}

// Of what a word has released: what reaches a thread that reads it at a scope; the rest is added
// to what has passed it by.
// Assumption: below the scope of the GPU that is what its own cluster is known to have done, be the
// scope the CTA's alone.
Abroad::Pointer seen_of(const Counter& counter, Thread& thread, Scope scope) {
  const Cta& cta = *thread.cta;
  Abroad::Pointer seen = counter.released;
  if (scope < Scope::kGpu && seen != nullptr) {
    thread.passed_narrowly = Abroad::joined(thread.passed_narrowly, seen);
    const Clock* own = seen->clock(cta.cluster->id);
    seen = own == nullptr ? nullptr : Abroad::of(cta.cluster->id, *own);
  }
  for (const Narrow& narrow : counter.narrow) {
    auto& where = reaches(narrow, cta, scope) ? seen : thread.passed_narrowly;
    where = Abroad::joined(where, narrow.released);
  }
  return seen;
}

// What an acquire at a scope makes known of what was released: what the host has released only at
// the system's (PTX: 8.6). Null for nothing.
Abroad::Pointer acquired_of(const Abroad::Pointer& released, Scope scope) {
  const bool all = scope == Scope::kSystem || current_operation() == nullptr ||
                   released == nullptr || !released->any_of(kOfHost, UINT32_MAX);
  return all ? released : released->below(kOfHost);
}

}  // namespace

// What a fence of the running thread covers for all that are behind it, and what it makes known of
// what they have observed.
void suppose_fence(Thread& thread, Scope scope) {
  Knowledge& knows = thread.knows;
  knows.covered = Abroad::joined(knows.covered, thread.fenced);
  const Abroad::Pointer acquired = acquired_of(knows.observed, scope);
  knows.supposed = Abroad::joined(knows.supposed, acquired);
  if (acquired == knows.observed) knows.observed = nullptr;
}

// PTX: fence.acq_rel.{cta,cluster,gpu,sys} (9.7.13), and membar.
// With an atomic after it a release, after an atomic an acquire.
// Assumption: a narrower fence after an atomic acquires what its own cluster has released, be the
// scope the CTA's alone.
void fence_acq_rel(Scope scope) {
  timed(Op::kFence, KB_EMU_CALLER, static_cast<uint32_t>(scope));
  interleave();
  if (!checking()) return;
  Thread& thread = self();
  if (scope >= Scope::kGpu && current_operation() != nullptr) {
    const std::lock_guard lock(guard);
    note_acquired(
        {acquired_of(thread.observed, scope), acquired_of(thread.knows.observed, scope), nullptr});
  }
  if (thread.observed != nullptr) {
    if (scope >= Scope::kGpu) {
      const Abroad::Pointer acquired = acquired_of(thread.observed, scope);
      learn(thread, acquired);
      if (acquired == thread.observed) thread.observed = nullptr;
    } else if (const Clock* own = thread.observed->clock(thread.cta->cluster->id)) {
      thread.knows.seen.join(*own);
    }
  }
  if (scope >= Scope::kGpu) {
    thread.fenced = release(thread);
    thread.fence_epoch = thread.knows.seen.at[thread.component];
    if (runs_ptx()) suppose_fence(thread, scope);
    if (scope == Scope::kSystem) {
      thread.knows.of_system = Abroad::joined(thread.knows.of_system, thread.fenced);
    }
  } else {
    thread.fenced_narrowly = release(thread);
    thread.narrow_scope = scope;
  }
}

// Before a strong write changes its word: what it releases, if it has .release or comes after a
// fence. Other OS threads may read the word as soon as it has changed.
// PTX: 8.8: atomics on one word are a chain: who sees the last sees what each of them released.
void counter_release(SyncWord word, bool releases, Scope scope) {
  if (!checking()) return;
  Thread& thread = self();
  const bool fenced = thread.fenced != nullptr || thread.fenced_narrowly != nullptr ||
                      thread.knows.covered != nullptr;
  if (!releases && !fenced) return;
  const Cta& cta = *thread.cta;
  const std::lock_guard lock(guard);
  Counter* const known = known_counter(word);
  Counter& counter = known != nullptr ? *known : counters[word];
  if (scope >= Scope::kGpu) {
    counter.supposed = Abroad::joined(Abroad::joined(counter.supposed, thread.knows.covered),
                                      thread.knows.supposed);
    counter.of_system = Abroad::joined(counter.of_system, thread.knows.of_system);
  }
  if (releases) {
    const Abroad::Pointer all = release(thread);
    if (scope == Scope::kSystem) counter.of_system = Abroad::joined(counter.of_system, all);
    release_at(counter, cta, scope, all);
    return;
  }
  release_at(counter, cta, scope, release_by_fence(thread));
  if (thread.fenced_narrowly != nullptr) {
    release_narrowly(counter, cta, std::min(scope, thread.narrow_scope), thread.fenced_narrowly);
  }
}

// After a strong read has its value: what the word's writers released, for a fence to acquire.
void counter_observe(SyncWord word, Scope scope) {
  if (!checking()) return;
  Thread& thread = self();
  if (word.cta == nullptr) thread.cta->cluster->launch->interacts = true;
  const std::lock_guard lock(guard);
  if (word.cta == nullptr && runs_ptx() && sync_words.size() < kMostSyncWords) {
    sync_words.insert(word.at);
  }
  const Counter* const counter = known_counter(word);
  if (counter == nullptr) return;
  const Abroad::Pointer seen = seen_of(*counter, thread, scope);
  thread.observed = Abroad::joined(thread.observed, seen);
  if (!runs_ptx()) return;
  thread.knows.observed = Abroad::joined(Abroad::joined(thread.knows.observed, seen),
                                         scope >= Scope::kGpu ? counter->supposed : nullptr);
}

// PTX: ld.acquire (9.7.9): what a wait for a counter has seen was released before.
void counter_acquire(SyncWord word, Scope scope) {
  if (!checking()) return;
  const std::lock_guard lock(guard);
  const Counter* const counter = known_counter(word);
  if (counter == nullptr) return;
  Thread& thread = self();
  const Abroad::Pointer released = seen_of(*counter, thread, scope);
  const Abroad::Pointer seen = acquired_of(released, scope);
  if (seen != released) thread.knows.observed = Abroad::joined(thread.knows.observed, released);
  learn(thread, seen);
  note_acquired({seen, scope >= Scope::kGpu ? counter->supposed : nullptr, nullptr});
  if (scope >= Scope::kGpu) {
    thread.knows.supposed = Abroad::joined(thread.knows.supposed, counter->supposed);
  }
}

// What a word holds before this call's first atomic on it, or wait for it.
void counter_used(const uint32_t* word, bool meeting) {
  if (!checking()) return;
  // Where the address is wild this ends the launch: nothing may be locked then.
  const uint32_t value = __atomic_load_n(word, __ATOMIC_RELAXED);
  const std::lock_guard lock(guard);
  Kept& known = kept.try_emplace(word, Kept{value, false}).first->second;
  known.meeting |= meeting;
  if (meeting) counters[SyncWord(word)].meeting = true;
}

bool observed_by_atomic(const Thread& thread, const Access& earlier) {
  const Abroad* observed = thread.observed.get();
  return observed != nullptr && observed->covers(earlier.cluster, earlier.component, earlier.epoch);
}

// Whether that is a fault only what follows from it tells: it is kept as a possible cause.
void note_carried(const Region& region, size_t word, const Access& left, const Actor& actor) {
  const auto* at = reinterpret_cast<const uint32_t*>(region.begin + word * 4);
  {
    const std::lock_guard lock(guard);
    const auto found = kept.find(at);
    if (found != kept.end()) {
      if (found->second.meeting || found->second.first == __atomic_load_n(at, __ATOMIC_RELAXED)) {
        return;
      }
    }
  }
  note_cause({.kind = Class::kNotReset,
              .pc = actor.pc,
              .other_pc = place_pc(left),
              .buffer = region.at(word * 4),
              .text = std::string(actor.what) + " finds in " + region.name +
                      " what an earlier call has left: nothing has set it back since its " +
                      place_what(left)});
}

// A counter is small; what is large is more likely a sum of floats.
std::string number_of(uint32_t value) {
  const float real = __builtin_bit_cast(float, value);
  if (!(std::abs(real) > 1e-9F && std::abs(real) < 1e9F)) return std::to_string(value);
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", static_cast<double>(real));
  return std::to_string(value) + " (" + text + " as a float)";
}

// A flag, a counter or a ticket that a launch leaves changed, for the next one of its kernel to
// find. Whether it was meant so only what comes of it tells: it is noted.
void meet_word(const Region& region, size_t word, const Access& writer, const Actor& actor) {
  const std::byte* const begin = region.begin + word * 4;
  if (writer.serial == launch_serial() || begin + 4 > region.end) return;
  auto* const at = reinterpret_cast<uint32_t*>(const_cast<std::byte*>(begin));
  const uint32_t value = __atomic_load_n(at, __ATOMIC_RELAXED);
  uint32_t before = value;
  // As another schedule of the launch has left it.
  const bool again = writer.serial != 0 && operation_of(writer.serial) == current_operation();
  {
    const std::lock_guard lock(guard);
    Met& known = met.try_emplace({kernel_running(), at}, Met{value}).first->second;
    const bool by_kernel = writer.serial != 0 && writer.cluster != Access::kManyClusters;
    if (by_kernel) before = known.value;
    known.value = before;
    if (!again) known.changed_by = writer.serial != 0 ? place_pc(writer) : nullptr;
  }
  if (value == before) return;
  const std::string memory = region.name.substr(0, region.name.find(" ("));
  // Before a store, too: others may still see what was there.
  if (set_back_in && (set_back_in->empty() || *set_back_in == memory)) {
    __atomic_store_n(at, before, __ATOMIC_RELAXED);
  }
  if (again || actor.overwrites()) return;
  note({.kind = Class::kNotReset,
        .pc = actor.pc,
        .other_pc = place_pc(writer),
        .buffer = region.name + " + " + std::to_string(word * 4),
        .text = std::string(actor.what) + " finds in " + region.name + " the value " +
                number_of(value) + " that an earlier launch has left, for " + number_of(before) +
                " before the first"});
}

void defer_to_word(const uint32_t* word, Finding finding) {
  constexpr size_t kMost = 16;
  finding.where = where_now();
  const std::lock_guard lock(guard);
  std::vector<Finding>& deferred = counters[SyncWord(word)].deferred;
  const bool known = std::any_of(deferred.begin(), deferred.end(), [&](const Finding& each) {
    return each.pc == finding.pc && each.other_pc == finding.other_pc;
  });
  if (!known && deferred.size() < kMost) deferred.push_back(std::move(finding));
}

// At the end of a launch.
// Assumption: a plain load of a word at which CTAs meet gives a value that it has had, and the bits
// that count are still.
void settle_counters() {
  note_late_stores();
  std::vector<Finding> findings;
  {
    const std::lock_guard lock(guard);
    for (auto& [word, counter] : counters) {
      if (counter.deferred.empty()) continue;
      if (counter.meeting) {
        assume(Assumption::kPlainMeetingLoads);
      } else {
        std::move(counter.deferred.begin(), counter.deferred.end(), std::back_inserter(findings));
      }
    }
    if (current_operation() != nullptr && (hands_over() || has_device_launches())) {
      keep_for_later_launches();
    }
    counters.clear();
  }
  // Whatever the addresses were.
  std::sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    return std::tie(a.buffer, a.pc, a.other_pc) < std::tie(b.buffer, b.pc, b.other_pc);
  });
  for (Finding& finding : findings) report(std::move(finding));
}

void hand_to_host() {
  const std::lock_guard lock(guard);
  keep_for_later_launches();
}

void take_from_host() {
  const std::lock_guard lock(guard);
  for (auto& [word, counter] : counters) {
    if (word.cta != nullptr) continue;
    const Released before = released_before(word.at);
    counter.released = Abroad::joined(counter.released, before.certain);
    counter.supposed = Abroad::joined(counter.supposed, before.supposed);
    counter.of_system = Abroad::joined(counter.of_system, before.of_system);
  }
}

void forget_sync_words() {
  sync_words.clear();
}

void begin_call() {
  call_serial = launches_begun() + 1;
}

uint64_t call_began() {
  return call_serial;
}

Pc changed_before(const void* word) {
  const std::lock_guard lock(guard);
  const auto found = met.find({kernel_running(), word});
  return found != met.end() ? found->second.changed_by : nullptr;
}

void forget_met_words(const void* begin, const void* end) {
  const std::lock_guard lock(guard);
  std::erase_if(
      met, [&](const auto& each) { return each.first.second >= begin && each.first.second < end; });
}

void forget_counters(const std::byte* begin, const std::byte* end) {
  const auto* first = reinterpret_cast<const uint32_t*>(begin);
  kept.erase(kept.lower_bound(first), kept.lower_bound(reinterpret_cast<const uint32_t*>(end)));
}

}  // namespace kb::emu

// What the loader calls: addresses in global memory, in order; how many.
extern "C" __attribute__((visibility("default"))) uint64_t kb_emu_sync_words(const void** found,
                                                                             uint64_t most) {
  uint64_t count = 0;
  for (const void* each : kb::emu::sync_words) {
    if (count < most) found[count++] = each;
  }
  return count;
}

// From now on stale words are set back where a launch of a program meets them first, in memory of
// that name or, if it is empty, in all.
extern "C" __attribute__((visibility("default"))) void kb_emu_set_back(const char* name) {
  kb::emu::set_back_in = name;
}
