// What every thread waits for when a launch cannot go on, or has not ended in time.
#include <algorithm>
#include <cstdio>
#include <mutex>

#include "api_ptx.hpp"
#include "collected.hpp"
#include "global_shadow.hpp"
#include "regions.hpp"
#include "runner.hpp"
#include "watchdog.hpp"

namespace kb::emu {

namespace {

bool waits(const Thread& thread) {
  return thread.wait.kind != Wait::Kind::kNone && thread.wait.kind != Wait::Kind::kYield;
}

// Of words by their addresses, as far as there is room, the last changes by strong writes.
struct Change {
  const void* at = nullptr;
  uint64_t serial = 0;  // of the launch
  uint32_t cluster = 0;
  uint32_t component = 0;
  uint64_t times = 0;
  Pc pc = nullptr;
};
constexpr size_t kChanges = 1024;
Change changes[kChanges];
std::mutex changing;

Change& change_of(const void* at) {
  return changes[reinterpret_cast<uintptr_t>(at) / 4 % kChanges];
}

// Which thread that was, and whether it may do so again.
std::string by_text(const Change& change, const std::deque<Cluster>& clusters) {
  const auto of = std::find_if(clusters.begin(), clusters.end(),
                               [&](const Cluster& each) { return each.id == change.cluster; });
  const Launch& launch = *(of == clusters.end() ? clusters.front() : *of).launch;
  if (change.component >= launch.threads * launch.cluster) return {};
  const uint32_t rank = change.component / launch.threads;
  const uint32_t thread = change.component % launch.threads;
  const CtaIndex cta = launch.cta_index(change.cluster, rank);
  std::string text = " by CTA " + std::to_string(cta.x);
  if (launch.grid.y * launch.grid.z > 1) {
    text += "," + std::to_string(cta.y) + "," + std::to_string(cta.z);
  }
  const bool gone = of == clusters.end() || of->ctas[rank].threads[thread].exited;
  return text + ", thread " + std::to_string(thread) + (gone ? ", which has exited" : "");
}

// Where a word of global memory is, as findings name it, what it holds, and since when.
void describe_word(WaitRecord& entry, const void* word, uint32_t bytes,
                   const std::deque<Cluster>& clusters) {
  const auto* at = static_cast<const std::byte*>(word);
  const Region* region = region_at(at);
  if (region == nullptr) return;
  const auto offset = static_cast<size_t>(at - region->begin);
  entry.word = region->at(offset);
  if (!region->allocated) entry.word += " + " + std::to_string(offset);
  if (bytes <= 8) entry.word += " holds " + std::to_string(bits_at(word, bytes));
  if (region->words == nullptr || !checking()) return;
  const Launch& launch = *clusters.front().launch;
  const Access& writer = region->words->writer(offset / 4);
  const Change& last = change_of(word);
  if (launch.runs(last.serial)) {
    if (last.at != word) return;  // no room was left for it
    entry.word += "; changed";
    if (last.times > 1) entry.word += " " + std::to_string(last.times) + " times, last";
    entry.word += by_text(last, clusters);
    entry.arrive_pc = last.pc;
  } else if (launch.runs(writer.serial) && !(writer.atomic && runs_ptx())) {
    entry.arrive_pc = place_pc(writer);
  } else {  // or by an atomic that has left it as it was
    entry.word += "; nothing in this launch has changed it";
    entry.arrive_pc = launch.runs(writer.serial) ? changed_before(word)
                      : writer.serial != 0       ? place_pc(writer)
                                                 : nullptr;
  }
}

// A parity names two phases: whether the thread waits for that of a phase which it has seen end,
// though another phase has ended since. Roles that count a ring's phases differently do.
bool skips(const Barrier& barrier, const Thread& thread, uint64_t parity) {
  if (barrier.cta != thread.cta || barrier.observed.empty()) return false;
  const int64_t seen = barrier.observed[thread.index];
  return seen > 0 && (seen & 1) != static_cast<int64_t>(parity & 1);
}

// Beside the wait itself, what its barrier still lacks, or the word holds.
WaitRecord record_of(const std::deque<Cluster>& clusters, const Thread& thread, const Wait& wait,
                     const Barrier* of, uint32_t bytes) {
  const Cta& cta = *thread.cta;
  WaitRecord entry{.cta = cta.index,
                   .rank = cta.rank,
                   .warp = thread.warp->index,
                   .lanes = 0,
                   .wait = wait,
                   .has_barrier = false,
                   .phase = 0,
                   .pending = 0,
                   .expected = 0,
                   .tx = 0,
                   .init_pc = nullptr,
                   .arrive_pc = nullptr,
                   .shared_type = cta.shared_type,
                   .triggered = cta.triggered};
  if (wait.kind == Wait::Kind::kMbarrier) {
    const Barrier& barrier =
        of != nullptr ? *of : cta.barriers[cta.barrier_index[wait.object / 8] - 1];
    entry.has_barrier = true;
    entry.phase = barrier.phase;
    entry.pending = barrier.pending;
    entry.expected = barrier.expected;
    entry.tx = barrier.tx;
    entry.init_pc = barrier.init_pc;
    entry.arrive_pc = barrier.arrive_pc;
    entry.skips = skips(barrier, thread, wait.value);
  }
  if (wait.kind == Wait::Kind::kNamedBarrier) {
    const NamedBarrier& barrier = cta.named[wait.object];
    entry.expected = barrier.expected;
    entry.pending = barrier.expected - barrier.arrived;
    entry.before = barrier.before;
  }
  if (wait.kind == Wait::Kind::kGlobal && wait.word != nullptr) {
    describe_word(entry, wait.word, bytes, clusters);
  }
  return entry;
}

// What a thread waits for: all that its loop looks at, if it polls.
std::vector<WaitRecord> records_of(const std::deque<Cluster>& clusters, const Thread& thread) {
  if (!thread.wait.polls) return {record_of(clusters, thread, thread.wait, nullptr, 4)};
  std::vector<WaitRecord> found;
  for (const Look& look : thread.polls.current()) {
    const bool barrier = look.kind == Wait::Kind::kMbarrier;
    const Wait wait{.kind = look.kind,
                    .pc = look.pc,
                    .object = look.offset,
                    .value = barrier ? look.parity : look.seen,
                    .word = look.at};
    const auto* const of = barrier ? static_cast<const Barrier*>(look.at) : nullptr;
    found.push_back(record_of(clusters, thread, wait, of, look.bytes));
  }
  return found;
}

// What a thread looks at that goes round.
std::vector<WaitRecord> spins_of(const std::deque<Cluster>& clusters, const Thread& thread) {
  const auto offset = static_cast<const std::byte*>(thread.spin.at) - thread.cta->shared;
  const bool shared = offset >= 0 && offset < static_cast<std::ptrdiff_t>(kSharedStride);
  const Wait wait{.kind = shared ? Wait::Kind::kShared : Wait::Kind::kGlobal,
                  .pc = thread.spin.pc,
                  .object = shared ? static_cast<uint32_t>(offset) : 0,
                  .value = bits_at(thread.spin.at, thread.spin.bytes),
                  .word = thread.spin.at};
  return {record_of(clusters, thread, wait, nullptr, thread.spin.bytes)};
}

bool same(const WaitRecord& one, const WaitRecord& other) {
  return one.wait.kind == other.wait.kind && one.wait.pc == other.wait.pc &&
         one.wait.object == other.wait.object && one.wait.value == other.wait.value &&
         one.word == other.word;
}

// Lanes of a warp that wait for the same thing at the same place are one entry.
struct Census {
  const std::deque<Cluster>& clusters;
  std::vector<WaitRecord> records = {};
  uint32_t waiting = 0;
  uint32_t running = 0;
  uint32_t exited = 0;  // of CTAs that wait, or should meet

  void count(const Cta& cta, const Warp& warp) {
    const auto first = static_cast<std::ptrdiff_t>(records.size());
    for (uint32_t lane = 0; lane < warp.count; ++lane) {
      const Thread& thread = warp.threads[lane];
      exited += thread.exited && (cta.live_threads > 0 || cta.cluster->launch->cooperative);
      if (thread.exited) continue;
      const bool goes_round = livelocked() && thread.spin.at != nullptr;
      ++(goes_round || !waits(thread) ? running : waiting);
      if (!goes_round && !waits(thread)) continue;
      for (const WaitRecord& record :
           goes_round ? spins_of(clusters, thread) : records_of(clusters, thread)) {
        const auto known =
            std::find_if(records.begin() + first, records.end(),
                         [&record](const WaitRecord& each) { return same(each, record); });
        WaitRecord& entry = known != records.end() ? *known : records.emplace_back(record);
        entry.lanes |= 1u << lane;
      }
    }
  }
};

// A named barrier at which threads have arrived and none waits; null if there is none.
const NamedBarrier* unattended(const Cta& cta, const std::vector<WaitRecord>& waits) {
  for (uint32_t number = 0; number < std::size(cta.named); ++number) {
    const bool waited_for = std::any_of(waits.begin(), waits.end(), [number](const auto& each) {
      return each.wait.kind == Wait::Kind::kNamedBarrier && each.wait.object == number;
    });
    if (cta.named[number].arrived > 0 && !waited_for) return &cta.named[number];
  }
  return nullptr;
}

}  // namespace

void note_change(const void* at, Pc pc) {
  if (!checking()) return;
  const Thread& thread = self();
  const Cluster& cluster = *thread.cta->cluster;
  const uint64_t serial = cluster.launch->serial;
  const std::lock_guard lock(changing);
  Change& last = change_of(at);
  const uint64_t before = last.at == at && last.serial == serial ? last.times : 0;
  last = {at, serial, cluster.id, thread.component, before + 1, pc};
}

void report_hang(std::deque<Cluster>& clusters, Pc running) {
  settle_counters();  // a race comes before the hang that it may have led to
  if (abandoned()) return;
  Census census{clusters};
  for (const Cluster& cluster : clusters) {
    for (const Cta& cta : cluster.ctas) {
      for (const Warp& warp : cta.warps) census.count(cta, warp);
    }
  }
  note_waits(census.records);
  std::string wait =
      std::to_string(census.waiting) + (census.waiting == 1 ? " thread waits" : " threads wait");
  if (census.exited > 0) wait += ", " + std::to_string(census.exited) + " exited";
  Pc unattended_pc = nullptr;
  for (const Cluster& cluster : clusters) {
    for (const Cta& cta : cluster.ctas) {
      const NamedBarrier* const barrier = unattended(cta, census.records);
      if (barrier == nullptr || unattended_pc != nullptr) continue;
      unattended_pc = barrier->pc;
      wait += "; " + std::to_string(barrier->arrived) + " of " + std::to_string(barrier->expected) +
              " threads have arrived at named barrier " + std::to_string(barrier - cta.named) +
              ", and none waits there";
    }
  }
  std::string text = "nothing can run and nothing is pending: " + wait;
  if (running != nullptr || overdue()) {
    char limit[32];
    std::snprintf(limit, sizeof limit, "%g s", options().limit_ms / 1000.0);
    text = std::string("the kernel has not ended after ") + limit + ": " + wait + ", " +
           std::to_string(census.running) + " can run";
  }
  if (livelocked()) {
    text = "livelock: " + std::to_string(census.running) + " threads go round, " +
           (livelock_changes_words() ? "each changes what others look at, and nothing comes of it"
                                     : "and no word changes that they look at") +
           "; " + wait;
  }
  const bool slow = (running != nullptr || overdue()) && goes_on() && !livelocked();
  end_launch({.kind = slow ? Class::kTimeout : Class::kHang,
              .pc = running,
              .other_pc = slow ? nullptr : unattended_pc,
              .text = std::move(text)});
}

}  // namespace kb::emu
