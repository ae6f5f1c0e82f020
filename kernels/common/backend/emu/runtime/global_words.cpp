// What launches did to the words of global memory: order between CTAs of one launch, and between
// grids of a stream (grids.cpp). CTAs of different clusters have no clocks in common. What one
// knows of another is all or nothing: by an atomic of its own that came after the other's release,
// at the scope of the GPU (PTX ISA 9.1, 8.5 and 8.8). CTAs that wait for counters may take turns,
// and are believed.
#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "api_core.hpp"
#include "assumptions.hpp"
#include "regions.hpp"
#include "runner.hpp"

namespace kb::emu {

namespace {

constexpr uint64_t kAtomic = 0xffffffff;

// Who read a word in the last launch that did: the first CTA and the last one, as number + 1, and
// whether one of them had triggered its dependents by then. 0: a CTA beyond what fits.
struct Readers {
  uint64_t serial = 0;
  bool triggered = false;
  uint32_t first = 0;
  uint32_t last = 0;
  static constexpr uint32_t kMost = (1u << 15) - 1;

  static Readers unpack(uint64_t word) {
    return {word >> 32, (word >> 31 & 1) != 0, static_cast<uint32_t>(word >> 16 & kMost),
            static_cast<uint32_t>(word & kMost)};
  }
  uint64_t pack() const {
    return serial << 32 | uint64_t{triggered} << 31 | uint64_t{first} << 16 | last;
  }
};

// What atomics on a word have released, in this launch: by which CTAs, and by which at a scope that
// does not reach another CTA.
struct Counter {
  std::vector<uint32_t> released;
  std::vector<uint32_t> narrow;
};
std::mutex counters_guard;
std::unordered_map<const uint32_t*, Counter> counters;
uint64_t counters_launch = 0;

const Cta& acting_cta() {
  return current_thread != nullptr ? *current_thread->cta : *current_task_cta;
}

uint32_t number_of(const Cta& cta) {
  const CtaIndex& grid = cta.cluster->launch->grid;
  return (cta.index.z * grid.y + cta.index.y) * grid.x + cta.index.x;
}

bool contains(const std::vector<uint32_t>& numbers, uint32_t number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

void insert(std::vector<uint32_t>& numbers, uint32_t number) {
  if (!contains(numbers, number)) numbers.push_back(number);
}

// A thread's access to what another CTA of the launch did before: whether the clusters are one, or
// an atomic lies between.
bool knows_cta(const Thread& thread, uint32_t other, bool writing) {
  const Cta& cta = *thread.cta;
  const uint32_t size = cta.cluster->launch->cluster;
  if (other / size == number_of(cta) / size) return true;
  if (!contains(cta.known, other)) return false;
  if (!thread.unfenced_atomic) return true;
  if (writing) assume(Assumption::kDependentStores);
  return writing;
}

void report_cta(const Thread& thread, uint32_t other, bool writing, bool wrote,
                const std::string& buffer, Pc pc, const char* what) {
  std::string text = std::string(what) + (writing ? " writes " : " reads ") + buffer +
                     " that another CTA " + (wrote ? "writes" : "reads") + ", without order";
  if (contains(thread.cta->known_narrowly, other)) {
    text += ": that CTA's fence before its atomic has a scope that does not reach this one";
  } else if (contains(thread.cta->known, other)) {
    text += ": no fence follows the atomic";
  }
  report({.kind = Class::kRace, .pc = pc, .text = std::move(text)});
}

// The first word of an access that another CTA of this launch has accessed in conflict.
void check_ctas(const Region& region, size_t first, size_t end, bool writing, Pc pc,
                const char* what) {
  const Thread& thread = self();
  const Launch& launch = *thread.cta->cluster->launch;
  const uint32_t mine = number_of(*thread.cta);
  const auto conflicts = [&](uint32_t number, bool wrote) {
    if (number == 0 || number - 1 == mine || knows_cta(thread, number - 1, writing)) return false;
    report_cta(thread, number - 1, writing, wrote, region.name, pc, what);
    return true;
  };
  for (size_t word = first; word < end; ++word) {
    if (writing) {
      const auto readers =
          Readers::unpack(__atomic_load_n(&region.words->readers[word], __ATOMIC_RELAXED));
      if (readers.serial != launch.serial) continue;
      if (conflicts(readers.first, false) || conflicts(readers.last, false)) return;
    } else {
      const uint64_t writer = __atomic_load_n(&region.words->writers[word], __ATOMIC_RELAXED);
      if (writer >> 32 != launch.serial || (writer & kAtomic) == kAtomic) continue;
      if (conflicts(static_cast<uint32_t>(writer), true)) return;
    }
  }
}

// Of buffers that can be written to.
void note_read(Words& words, size_t first, size_t end) {
  const Cta& cta = *self().cta;
  const uint32_t number = number_of(cta) + 1;
  Readers mine{cta.cluster->launch->serial, cta.triggered, 0, 0};
  if (words.read_in != mine.serial) words.read_in = mine.serial;
  for (size_t word = first; word < end; ++word) {
    const uint64_t packed = __atomic_load_n(&words.readers[word], __ATOMIC_RELAXED);
    const Readers before = Readers::unpack(packed);
    const bool again = before.serial == mine.serial;
    mine.last = number <= Readers::kMost ? number : 0;
    mine.first = again && before.first != 0 ? before.first : mine.last;
    mine.triggered = cta.triggered || (again && before.triggered);
    if (mine.pack() != packed) {
      __atomic_store_n(&words.readers[word], mine.pack(), __ATOMIC_RELAXED);
    }
  }
}

GridAccess last_grid_access(const Region& region, size_t first, size_t end, bool writing,
                            uint64_t serial) {
  GridAccess last;
  const auto later = [&](uint64_t found, bool wrote) {
    if (found < serial && found > last.serial) last = {found, wrote, region.name};
  };
  for (size_t word = first; word < end; ++word) {
    later(__atomic_load_n(&region.words->writers[word], __ATOMIC_RELAXED) >> 32, true);
    if (!writing) continue;
    const auto readers =
        Readers::unpack(__atomic_load_n(&region.words->readers[word], __ATOMIC_RELAXED));
    if (readers.triggered) later(readers.serial, false);
  }
  return last;
}

}  // namespace

bool global_watched(const void* pointer, bool writing) {
  const Region* region = region_at(static_cast<const std::byte*>(pointer));
  if (region == nullptr || !region->writable) return false;
  const Launch& launch = *self().cta->cluster->launch;
  return !writing || launch.open_unwaited != launch.serial ||
         (region->words != nullptr && region->words->read_in == launch.serial);
}

// An access to global memory by the running thread, or by a copy that it issues.
void grid_access(const void* pointer, size_t bytes, bool writing, Pc pc, const char* what) {
  if (!checking() || !global_watched(pointer, writing)) return;
  const auto* from = static_cast<const std::byte*>(pointer);
  Words& words = words_of(*region_at(from));
  const Region& region = *region_at(from);
  const Cta& cta = *self().cta;
  const Launch& launch = *cta.cluster->launch;
  const auto offset = static_cast<size_t>(from - region.begin);
  const size_t first = offset / 4;
  const size_t end = std::min((offset + bytes + 3) / 4, words.writers.size());
  const bool alone = launch.meets || launch.grid.x * launch.grid.y * launch.grid.z == 1;
  const std::atomic<uint64_t>& other = writing ? words.read_in : words.written_in;
  if (!alone && other == launch.serial) check_ctas(region, first, end, writing, pc, what);
  if (launch.open_unwaited != launch.serial) {
    check_grids(last_grid_access(region, first, end, writing, launch.serial), writing, pc, what);
  }
  if (!writing && (!alone || cta.triggered)) note_read(words, first, end);
}

// PTX: 8: two writes of different CTAs to one location without order are a data race.
// Two CTAs of one launch that write the same bytes race, unless they meet.
void global_written(const void* pointer, size_t bytes, Pc pc, const char* what) {
  if (!checking()) return;
  const Cta& cta = acting_cta();
  const Launch& launch = *cta.cluster->launch;
  const Region* region = region_at(static_cast<const std::byte*>(pointer));
  if (region == nullptr) return;
  Words& words = words_of(*region);
  if (words.written_in != launch.serial) words.written_in = launch.serial;
  const uint64_t mine = launch.serial << 32 | (uint64_t{number_of(cta)} + 1);
  const auto first = static_cast<size_t>(static_cast<const std::byte*>(pointer) - region->begin);
  // Words that are written in part may have another writer for the rest.
  for (size_t word = (first + 3) / 4; word < (first + bytes) / 4; ++word) {
    const uint64_t before = __atomic_exchange_n(&words.writers[word], mine, __ATOMIC_RELAXED);
    if (before == mine || before >> 32 != launch.serial) continue;
    // Clusters of launches that meet may take turns.
    if (launch.meets || (before & kAtomic) == kAtomic) continue;
    if (current_thread != nullptr && contains(cta.known, static_cast<uint32_t>(before) - 1)) {
      continue;
    }
    report({.kind = Class::kRace,
            .pc = pc,
            .text = std::string(what) + " writes bytes of " + region->name +
                    " that another CTA writes, too"});
    return;
  }
}

// An atomic: of two CTAs' there is no race.
void global_changed(const void* pointer, size_t bytes, Pc pc, const char* what) {
  if (!checking()) return;
  grid_access(pointer, bytes, true, pc, what);
  const auto* first = static_cast<const std::byte*>(pointer);
  const Region* region = region_at(first);
  if (region == nullptr) return;
  Words& words = words_of(*region);
  words.written_in = self().cta->cluster->launch->serial;
  const uint64_t mine = words.written_in << 32 | kAtomic;
  const auto offset = static_cast<size_t>(first - region->begin);
  for (size_t word = offset / 4; word < (offset + bytes) / 4; ++word) {
    __atomic_store_n(&words.writers[word], mine, __ATOMIC_RELAXED);
  }
}

// For maps in global memory: ordinary stores to one are not seen by the tensormap proxy.
bool written_in_launch(const void* pointer, size_t bytes) {
  const Region* region = region_at(static_cast<const std::byte*>(pointer));
  if (region == nullptr || region->words == nullptr) return false;
  const auto first = static_cast<size_t>(static_cast<const std::byte*>(pointer) - region->begin);
  const uint64_t serial = self().cta->cluster->launch->serial;
  for (size_t word = first / 4; word < (first + bytes) / 4; ++word) {
    if (__atomic_load_n(&region->words->writers[word], __ATOMIC_RELAXED) >> 32 == serial)
      return true;
  }
  return false;
}

// PTX: fence.acq_rel.{cta,cluster,gpu,sys} (9.7.13), and membar.
// With an atomic after it a release, after an atomic an acquire.
void fence_acq_rel(Scope scope) {
  interleave();
  if (!checking()) return;
  Thread& thread = self();
  thread.fenced = std::max(thread.fenced, static_cast<int>(scope));
  if (scope == Scope::kGpu) thread.unfenced_atomic = false;
}

// An atomic at GPU scope: takes over what earlier ones on the word released, if it returns a value,
// and releases if it has .release or comes after a fence.
void counter_atomic(const uint32_t* word, bool returns, bool releases) {
  if (!checking()) return;
  Thread& thread = self();
  Cta& cta = *thread.cta;
  const Launch& launch = *cta.cluster->launch;
  const bool fenced = thread.fenced >= 0;
  const std::lock_guard lock(counters_guard);
  if (counters_launch != launch.serial) counters.clear();
  counters_launch = launch.serial;
  const auto found = counters.find(word);
  if (returns && found != counters.end()) {
    for (uint32_t number : found->second.released) insert(cta.known, number);
    for (uint32_t number : found->second.narrow) insert(cta.known_narrowly, number);
    thread.unfenced_atomic = true;
  }
  if (!releases && !fenced) return;
  Counter& counter = counters[word];
  if (releases || thread.fenced == static_cast<int>(Scope::kGpu)) {
    insert(counter.released, number_of(cta));
    for (uint32_t number : cta.known) insert(counter.released, number);
  } else {
    insert(counter.narrow, number_of(cta));
  }
}

}  // namespace kb::emu
