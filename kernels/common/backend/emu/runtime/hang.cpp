// What every thread waits for when a launch cannot go on, or has not ended in time.
#include <cstdio>

#include "collected.hpp"
#include "global_shadow.hpp"
#include "runner.hpp"
#include "watchdog.hpp"

namespace kb::emu {

namespace {

bool waits(const Thread& thread) {
  return thread.wait.kind != Wait::Kind::kNone && thread.wait.kind != Wait::Kind::kYield;
}

// Beside the wait itself, what its barrier still lacks.
WaitRecord record_of(const Cta& cta, const Warp& warp, const Wait& wait) {
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
                   .shared_type = cta.shared_type};
  if (wait.kind == Wait::Kind::kMbarrier) {
    const Barrier& barrier = cta.barriers[cta.barrier_index[wait.object / 8] - 1];
    entry.has_barrier = true;
    entry.phase = barrier.phase;
    entry.pending = barrier.pending;
    entry.expected = barrier.expected;
    entry.tx = barrier.tx;
    entry.init_pc = barrier.init_pc;
  }
  if (wait.kind == Wait::Kind::kNamedBarrier) {
    const NamedBarrier& barrier = cta.named[wait.object];
    entry.expected = barrier.expected;
    entry.pending = barrier.expected - barrier.arrived;
  }
  return entry;
}

// Lanes of a warp that wait for the same thing at the same place are one entry.
struct Census {
  std::vector<WaitRecord> records;
  uint32_t waiting = 0;
  uint32_t running = 0;

  void count(const Cta& cta, const Warp& warp) {
    uint32_t done = 0;
    for (uint32_t lane = 0; lane < warp.count; ++lane) {
      const Thread& thread = warp.threads[lane];
      if (thread.exited || done >> lane & 1) continue;
      if (!waits(thread)) {
        ++running;
        continue;
      }
      WaitRecord entry = record_of(cta, warp, thread.wait);
      for (uint32_t other = lane; other < warp.count; ++other) {
        const Thread& same = warp.threads[other];
        if (same.exited || same.wait.pc != thread.wait.pc ||
            same.wait.object != thread.wait.object || same.wait.value != thread.wait.value) {
          continue;
        }
        entry.lanes |= 1u << other;
        ++waiting;
      }
      done |= entry.lanes;
      records.push_back(entry);
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
  end_launch({.kind = Class::kHang, .pc = running, .text = std::move(text)});
}

}  // namespace kb::emu
