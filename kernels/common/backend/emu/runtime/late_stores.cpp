// Strong stores that are seen late: of relaxed and volatile accesses only fences, releases and
// acquires say which comes first. A strong load of another cluster to which nothing has made the
// last store known gives what was there before, at times; then, and for whoever is behind it, never
// again.
// PTX: 8.4: "volatile operations" have the memory synchronization semantics of relaxed ones at the
// scope of the system; 8.9 and 8.10: causality order and coherence are all that orders them.
// Assumption: atomics are seen at once, and a thread that has seen a flag reads behind it.
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "api_core.hpp"
#include "global_shadow.hpp"
#include "operations.hpp"
#include "runner.hpp"

namespace kb::emu {

namespace {

struct By {
  uint32_t cluster;
  uint32_t component;
  uint32_t epoch;
};
struct Late {
  uint64_t serial;  // of the launch
  uint32_t bytes;
  uint64_t before;
  By writer;
  Pc pc;
  std::vector<By> seen;  // and who has had what was before
};
// Beyond, all see it.
constexpr size_t kMostSeen = 64, kMostStores = 1 << 16;

std::mutex guard;
// Of this launch. Where a thread looks again, as at a flag, it is of no weight.
std::vector<Finding> notes;
std::set<Pc> looked_again;
std::unordered_map<const void*, Late> stores;
// Whether all are seen at once, all the same: whether a program fails for want of that.
bool at_once = false;

By running() {
  const Thread& thread = self();
  return {thread.cta->cluster->id, thread.component, thread.knows.seen.at[thread.component]};
}

bool knows_of(const Thread& thread, const By& by) {
  if (by.cluster == thread.cta->cluster->id) {
    return by.component == thread.component || thread.knows.seen.covers(by.component, by.epoch);
  }
  const auto covers = [&by](const Abroad::Pointer& known) {
    return known != nullptr && known->covers(by.cluster, by.component, by.epoch);
  };
  return covers(thread.knows.abroad) || covers(thread.knows.supposed) ||
         covers(thread.knows.observed) || covers(thread.observed);
}

}  // namespace

void store_may_come_late(const void* at, uint32_t bytes, uint64_t before, Pc pc) {
  if (!checking() || current_operation() == nullptr) return;
  const std::lock_guard lock(guard);
  if (stores.size() > kMostStores) stores.clear();
  // Of other sizes nothing is kept.
  for (const ptrdiff_t beside : {-4, 4}) {
    const auto found = stores.find(static_cast<const std::byte*>(at) + beside);
    if (found != stores.end() && (bytes == 8 || found->second.bytes == 8)) stores.erase(found);
  }
  stores[at] = {launch_serial(), bytes, before, running(), pc, {}};
}

void store_is_seen(const void* at) {
  if (!checking() || current_operation() == nullptr) return;
  const std::lock_guard lock(guard);
  stores.erase(at);
}

uint64_t seen_at(const void* at, uint32_t bytes, uint64_t value, Pc pc) {
  if (!checking() || current_operation() == nullptr) return value;
  const Thread& thread = self();
  const std::lock_guard lock(guard);
  const auto found = stores.find(at);
  if (found == stores.end()) return value;
  Late& late = found->second;
  if (late.serial != launch_serial() || late.bytes != bytes) return value;
  if (knows_of(thread, late.writer) || late.writer.cluster == thread.cta->cluster->id) return value;
  for (const By& each : late.seen) {
    if (!knows_of(thread, each)) continue;
    if (each.component == thread.component) looked_again.insert(pc);
    return value;
  }
  if (late.seen.size() >= kMostSeen) return value;
  late.seen.push_back(running());
  if (!one_in(2) || at_once) return value;
  constexpr const char* kText =
      "a strong load gives what was there before the store of another CTA: no release, or fence "
      "and flag, stands between the two";
  notes.push_back({.kind = Class::kRace, .pc = pc, .other_pc = late.pc, .text = kText});
  notes.back().where = where_now();
  return late.before;
}

void note_late_stores() {
  const std::lock_guard lock(guard);
  for (Finding& each : notes) {
    if (looked_again.count(each.pc) == 0) note(std::move(each));
  }
  notes.clear();
  looked_again.clear();
}

}  // namespace kb::emu

extern "C" __attribute__((visibility("default"))) void kb_emu_stores_seen_at_once() {
  kb::emu::at_once = true;
}
