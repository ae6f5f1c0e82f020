// What every thread waits for when a launch cannot go on, or has not ended in time.
#include <algorithm>
#include <cstdio>

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

// Where a word of global memory is, as findings name it, and what it holds.
std::string word_text(const void* word, uint32_t bytes) {
  const auto* at = static_cast<const std::byte*>(word);
  const Region* region = region_at(at);
  if (region == nullptr) return {};
  std::string place = region->at(static_cast<size_t>(at - region->begin));
  if (!region->allocated) place += " + " + std::to_string(at - region->begin);
  return place + (bytes <= 8 ? " holds " + std::to_string(bits_at(word, bytes)) : "");
}

// Beside the wait itself, what its barrier still lacks, or the word holds.
WaitRecord record_of(const Cta& cta, const Warp& warp, const Wait& wait, const Barrier* of,
                     uint32_t bytes) {
  WaitRecord entry{.cta = cta.index,
                   .rank = cta.rank,
                   .warp = warp.index,
                   .lanes = 0,
                   .wait = wait,
                   .has_barrier = false,
                   .phase = 0,
                   .pending = 0,
                   .expected = 0,
                   .tx = 0,
                   .init_pc = nullptr,
                   .arrive_pc = nullptr,
                   .shared_type = cta.shared_type};
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
  }
  if (wait.kind == Wait::Kind::kNamedBarrier) {
    const NamedBarrier& barrier = cta.named[wait.object];
    entry.expected = barrier.expected;
    entry.pending = barrier.expected - barrier.arrived;
  }
  if (wait.kind == Wait::Kind::kGlobal && wait.word != nullptr) {
    entry.word = word_text(wait.word, bytes);
  }
  return entry;
}

// What a thread waits for: all that its loop looks at, if it polls.
std::vector<WaitRecord> records_of(const Cta& cta, const Warp& warp, const Thread& thread) {
  if (!thread.wait.polls) return {record_of(cta, warp, thread.wait, nullptr, 4)};
  std::vector<WaitRecord> found;
  for (const Look& look : thread.polls.current()) {
    const bool barrier = look.kind == Wait::Kind::kMbarrier;
    const Wait wait{.kind = look.kind,
                    .pc = look.pc,
                    .object = look.offset,
                    .value = barrier ? look.parity : look.seen,
                    .word = look.at};
    found.push_back(record_of(
        cta, warp, wait, barrier ? static_cast<const Barrier*>(look.at) : nullptr, look.bytes));
  }
  return found;
}

// What a thread looks at that goes round.
std::vector<WaitRecord> spins_of(const Cta& cta, const Warp& warp, const Thread& thread) {
  const auto offset = static_cast<const std::byte*>(thread.spin.at) - cta.shared;
  const bool shared = offset >= 0 && offset < static_cast<std::ptrdiff_t>(kSharedStride);
  const Wait wait{.kind = shared ? Wait::Kind::kShared : Wait::Kind::kGlobal,
                  .pc = thread.spin.pc,
                  .object = shared ? static_cast<uint32_t>(offset) : 0,
                  .value = bits_at(thread.spin.at, thread.spin.bytes),
                  .word = thread.spin.at};
  return {record_of(cta, warp, wait, nullptr, thread.spin.bytes)};
}

bool same(const WaitRecord& one, const WaitRecord& other) {
  return one.wait.kind == other.wait.kind && one.wait.pc == other.wait.pc &&
         one.wait.object == other.wait.object && one.wait.value == other.wait.value &&
         one.word == other.word;
}

// Lanes of a warp that wait for the same thing at the same place are one entry.
struct Census {
  std::vector<WaitRecord> records;
  uint32_t waiting = 0;
  uint32_t running = 0;

  void count(const Cta& cta, const Warp& warp) {
    const auto first = static_cast<std::ptrdiff_t>(records.size());
    for (uint32_t lane = 0; lane < warp.count; ++lane) {
      const Thread& thread = warp.threads[lane];
      if (thread.exited) continue;
      const bool goes_round = livelocked() && thread.spin.at != nullptr;
      ++(goes_round || !waits(thread) ? running : waiting);
      if (!goes_round && !waits(thread)) continue;
      for (const WaitRecord& record :
           goes_round ? spins_of(cta, warp, thread) : records_of(cta, warp, thread)) {
        const auto known =
            std::find_if(records.begin() + first, records.end(),
                         [&record](const WaitRecord& each) { return same(each, record); });
        WaitRecord& entry = known != records.end() ? *known : records.emplace_back(record);
        entry.lanes |= 1u << lane;
      }
    }
  }
};

}  // namespace

void report_hang(std::deque<Cluster>& clusters, Pc running) {
  settle_counters();  // a race comes before the hang that it may have led to
  if (abandoned()) return;
  Census census;
  for (const Cluster& cluster : clusters) {
    for (const Cta& cta : cluster.ctas) {
      for (const Warp& warp : cta.warps) census.count(cta, warp);
    }
  }
  note_waits(census.records);
  const std::string wait = std::to_string(census.waiting) + " threads wait";
  std::string text = "nothing can run and nothing is pending: " + wait;
  if (running != nullptr || overdue()) {
    char limit[32];
    std::snprintf(limit, sizeof limit, "%g s", options().limit_ms / 1000.0);
    text = std::string("the kernel has not ended after ") + limit + ": " + wait + ", " +
           std::to_string(census.running) + " can run";
  }
  if (livelocked()) {
    text = "livelock: " + std::to_string(census.running) +
           " threads go round, each changes what others look at, and nothing comes of it; " + wait;
  }
  const bool slow = (running != nullptr || overdue()) && goes_on() && !livelocked();
  end_launch(
      {.kind = slow ? Class::kTimeout : Class::kHang, .pc = running, .text = std::move(text)});
}

}  // namespace kb::emu
