// Vector clocks: who knows of which events, and who acts: threads and asynchronous operations.
// Happens-before stands for causality order (PTX ISA 9.1, chapter 8), built from releases and
// acquires.
#include <algorithm>
#include <iterator>
#include <utility>

#include "core.hpp"

namespace kb::emu {

// The maximum of each component: what either knew.
void Clock::join(const Clock& other) {
  if (at.size() < other.at.size()) at.resize(other.at.size());
  const size_t count = other.at.size();
  for (size_t i = 0; i < count; ++i) at[i] = std::max(at[i], other.at[i]);
}

void Clock::join(const Clock& other, uint32_t begin, uint32_t end) {
  if (other.at.empty()) return;
  if (at.size() < other.at.size()) at.resize(other.at.size());
  for (uint32_t i = begin; i < end; ++i) at[i] = std::max(at[i], other.at[i]);
}

namespace {

constexpr uint32_t kPart = kClockPart;

// Of one part the maximum, for as many at a time as a register holds; whether that is more.
bool raise(uint32_t* __restrict mine, const uint32_t* __restrict other) {
  uint32_t more = 0;
  for (uint32_t i = 0; i < kPart; ++i) {
    more |= other[i] > mine[i] ? ~0u : 0;
    mine[i] = std::max(mine[i], other[i]);
  }
  return more != 0;
}

}  // namespace

void Growing::join(Clock& mine, const Clock& other) {
  if (mine.at.size() < other.at.size()) mine.at.resize(other.at.size());
  const size_t parts = other.at.size() / kPart;
  if (grown.size() < parts) grown.resize(parts);
  for (size_t part = 0; part < parts; ++part) {
    if (raise(&mine.at[part * kPart], &other.at[part * kPart])) grown[part] = version;
  }
}

void Growing::join(const Knowledge& other) {
  ++version;
  join(seen, other.seen);
  join(published, other.published);
  join(grouped, other.grouped);
  join(unfenced, other.unfenced);
  join_abroad(other);
}

void Growing::hand_to(Knowledge& to, uint32_t& taken) const {
  if (taken >= version) return;
  const std::pair<Clock*, const Clock*> all[] = {{&to.seen, &seen},
                                                 {&to.published, &published},
                                                 {&to.grouped, &grouped},
                                                 {&to.unfenced, &unfenced}};
  uint32_t* mine[std::size(all)];
  const uint32_t* others[std::size(all)];
  uint32_t count = 0;
  for (const auto& [clock, other] : all) {
    if (other->at.empty()) continue;
    if (clock->at.size() < other->at.size()) clock->at.resize(other->at.size());
    mine[count] = clock->at.data();
    others[count++] = other->at.data();
  }
  for (uint32_t part = 0; part < grown.size(); ++part) {
    if (grown[part] <= taken) continue;
    for (uint32_t i = 0; i < count; ++i) raise(mine[i] + part * kPart, others[i] + part * kPart);
  }
  to.join_abroad(*this);
  taken = version;
}

namespace {

using ClockPointer = std::shared_ptr<const Clock>;

// The maximum of two clocks of one cluster: one of them where it covers the other.
ClockPointer joined_clock(const ClockPointer& left, const ClockPointer& right) {
  if (left == right) return left;
  bool left_covers = true;
  bool right_covers = true;
  for (size_t i = 0; i < left->at.size(); ++i) {
    left_covers &= left->at[i] >= right->at[i];
    right_covers &= right->at[i] >= left->at[i];
  }
  if (left_covers) return left;
  if (right_covers) return right;
  Clock both = *left;
  both.join(*right);
  return std::make_shared<const Clock>(std::move(both));
}

}  // namespace

Abroad::Pointer Abroad::of(uint32_t cluster, const Clock& seen) {
  Abroad one;
  one.entries_.push_back({cluster, std::make_shared<const Clock>(seen)});
  return std::make_shared<const Abroad>(std::move(one));
}

// One of the two where it says all that the other does: what many have acquired from one word stays
// one object.
Abroad::Pointer Abroad::joined(const Pointer& left, const Pointer& right) {
  if (left == right || right == nullptr) return left;
  if (left == nullptr) return right;
  Abroad all;
  all.entries_.reserve(left->entries_.size() + right->entries_.size());
  bool is_left = true;
  bool is_right = true;
  auto a = left->entries_.begin();
  auto b = right->entries_.begin();
  while (a != left->entries_.end() || b != right->entries_.end()) {
    if (b == right->entries_.end() || (a != left->entries_.end() && a->cluster < b->cluster)) {
      is_right = false;
      all.entries_.push_back(*a++);
    } else if (a == left->entries_.end() || b->cluster < a->cluster) {
      is_left = false;
      all.entries_.push_back(*b++);
    } else {
      const ClockPointer both = joined_clock(a->seen, b->seen);
      is_left &= both == a->seen;
      is_right &= both == b->seen;
      all.entries_.push_back({a->cluster, both});
      ++a, ++b;
    }
  }
  if (is_left) return left;
  if (is_right) return right;
  return std::make_shared<const Abroad>(std::move(all));
}

std::vector<Abroad::Entry>::const_iterator Abroad::from(uint32_t cluster) const {
  return std::lower_bound(entries_.begin(), entries_.end(), cluster,
                          [](const Entry& entry, uint32_t id) { return entry.cluster < id; });
}

bool Abroad::any_of(uint32_t first, uint32_t last) const {
  const auto found = from(first);
  return found != entries_.end() && found->cluster < last;
}

Abroad::Pointer Abroad::below(uint32_t limit) const {
  const auto end = from(limit);
  if (end == entries_.begin()) return nullptr;
  const auto made = std::make_shared<Abroad>();
  made->entries_.assign(entries_.begin(), end);
  return made;
}

uint32_t Abroad::highest_below(uint32_t limit) const {
  const auto behind = from(limit);
  return behind == entries_.begin() ? 0 : std::prev(behind)->cluster;
}

Abroad::Pointer Abroad::renumbered(uint32_t limit, uint32_t begin) const {
  Abroad all;
  const auto behind = from(limit);
  all.entries_.assign(behind, entries_.end());
  for (auto each = entries_.begin(); each != behind; ++each) {
    all.entries_.push_back({begin + each->cluster, each->seen});
  }
  std::sort(all.entries_.begin(), all.entries_.end(),
            [](const Entry& one, const Entry& other) { return one.cluster < other.cluster; });
  return std::make_shared<const Abroad>(std::move(all));
}

const Clock* Abroad::clock(uint32_t cluster) const {
  const auto found = from(cluster);
  return found == entries_.end() || found->cluster != cluster ? nullptr : found->seen.get();
}

bool Abroad::covers(uint32_t cluster, uint32_t component, uint32_t epoch) const {
  const Clock* known = clock(cluster);
  return known != nullptr && known->covers(component, epoch);
}

Actor generic_actor(Pc pc, const char* what) {
  return generic_actor(self(), pc, what);
}

Actor generic_actor(const Thread& thread, Pc pc, const char* what) {
  Actor actor;
  actor.knows = &thread.knows;
  actor.component = thread.component;
  actor.epoch = checking() ? thread.knows.seen.at[thread.component] : 0;
  actor.thread = static_cast<int32_t>(thread.index);
  actor.cta_rank = thread.cta->rank;
  actor.pc = pc;
  actor.what = what;
  return actor;
}

bool lanes_of_one_warp(const Cta& cta, uint32_t component, uint32_t other) {
  const auto threads = static_cast<uint32_t>(cta.threads.size());
  if (std::max(component, other) >= threads * cta.cluster->ctas.size()) return false;
  return component / threads == other / threads &&
         component % threads / kWarpSize == other % threads / kWarpSize;
}

namespace {

// PTX: 8.9 and 9.7.9: an asynchronous operation is as if performed by another thread that is
// ordered behind its issue, and before nothing until its completion mechanism says so.
// The operation knows what its issuer knew, and itself; the issuer does not know that it has
// happened.
AsyncActor async_actor(uint32_t component, uint32_t epoch, bool async, bool tensor, Pc pc,
                       const char* what) {
  Thread& thread = self();
  AsyncActor result;
  result.actor.component = component;
  result.actor.epoch = epoch;
  result.actor.async = async;
  result.actor.tensor = tensor;
  result.actor.thread = static_cast<int32_t>(thread.index);
  result.actor.cta_rank = thread.cta->rank;
  result.actor.pc = pc;
  result.actor.what = what;
  if (checking()) {
    result.knows = thread.knows;
    result.knows.seen.at[component] = epoch;
    // What the issuer does from now on is not ordered before the operation.
    ++thread.knows.seen.at[thread.component];
  }
  return result;
}

}  // namespace

// PTX: 9.7.9: there is no order between asynchronous copies, of one thread or of several.
// Each copy is a component of its own, as long as there are slots.
Event copy_slot() {
  Cluster& cluster = *self().cta->cluster;
  const uint32_t number = cluster.next_copy++;
  return {cluster.components - kCopySlots + number % kCopySlots, number / kCopySlots + 1};
}

AsyncActor copy_actor(Pc pc, const char* what) {
  const Event slot = copy_slot();
  return async_actor(slot.component, slot.epoch, true, false, pc, what);
}

// PTX: 9.7.16.6, pipelined instructions: tcgen05.mma, cp and commit of one thread in order among
// themselves; wgmma.mma_async of one warpgroup (9.7.15).
// Operations of one warp in one pipe are epochs of one component: in order. tcgen05.ld and st touch
// no shared memory.
// Assumption: the order is kept per warp, not per thread: kernels elect one thread of a warp, and
// which one is nobody's promise.
AsyncActor pipe_actor(Pipe pipe, Pc pc, const char* what) {
  Thread& thread = self();
  Warp& warp = *thread.warp;
  const uint32_t component = pipe_component(warp, *thread.cta, pipe);
  const bool reads_shared = pipe == Pipe::kTensor;
  return async_actor(component, ++warp.pipe_epoch[static_cast<uint32_t>(pipe)], reads_shared, true,
                     pc, what);
}

uint32_t pipe_component(const Warp& warp, const Cta& cta, Pipe pipe) {
  const auto warps = static_cast<uint32_t>(cta.warps.size());
  const auto threads = static_cast<uint32_t>(cta.threads.size());
  return static_cast<uint32_t>(cta.cluster->ctas.size()) * threads +
         2 * (cta.rank * warps + warp.index) + static_cast<uint32_t>(pipe);
}

// PTX: 8.8, release pattern: what happened before it in the releasing thread, and what that thread
// has observed (cumulativity).
// The thread's next epoch begins: what it does from now on is not released.
void release_to(Knowledge& object) {
  if (!checking()) return;
  Thread& thread = self();
  object.join(thread.knows);
  ++thread.knows.seen.at[thread.component];
}

// PTX: 8.8, acquire pattern.
// From now on the thread knows what the object does.
void acquire_from(const Knowledge& object) {
  if (checking()) self().knows.join(object);
}

}  // namespace kb::emu
