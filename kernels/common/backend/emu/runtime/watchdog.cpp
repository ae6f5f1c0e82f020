// Launches that last longer than their limit: kernel code without a primitive never gives way, so a
// signal ends it. Models nothing of PTX.
#include "watchdog.hpp"

#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <string>
#include <typeinfo>
#include <vector>

#include "api_ptx.hpp"
#include "runner.hpp"

namespace {

// Nanoseconds that a thread has been ready to run, and has not run, as Linux counts them, else 0.
uint64_t queued_ns(int thread) {
  std::ifstream counts("/proc/self/task/" + std::to_string(thread) + "/schedstat");
  uint64_t ran = 0;
  uint64_t queued = 0;
  counts >> ran >> queued;
  return queued;
}

}  // namespace

// Tests put another source here.
extern "C" __attribute__((visibility("default"))) uint64_t (*kb_emu_queued_ns)(int) = queued_ns;

namespace kb::emu {

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// From one signal to the next: one may come where the kernel's code is not running.
constexpr milliseconds kInterval{5};
// That tell where the kernel is, before a scheduler that runs may end it without.
constexpr int kSignals = 40;

// Before the limit: what the launch has done by then, if it goes on, it does until the limit, too.
constexpr milliseconds kLast{5000};

std::atomic<bool> is_overdue{false};
std::atomic<bool> is_going_on{false};
std::atomic<uintptr_t> code_begin{0};
std::atomic<uintptr_t> code_end{0};

std::mutex watched_guard;
struct Scheduler {
  pthread_t thread;
  const std::atomic<uint64_t>* rounds;
  int number;
  uint64_t queued_ns;  // before the launch
};
std::vector<Scheduler> watched;
// Written by its thread alone.
thread_local std::atomic<uint64_t> own_rounds{0};

uint64_t rounds() {
  const std::lock_guard alive(watched_guard);
  uint64_t sum = 0;
  for (const Scheduler& each : watched) sum += each.rounds->load(std::memory_order_relaxed);
  return sum;
}

// How long the scheduler that has waited for a core most has done so.
nanoseconds without_a_core() {
  const std::lock_guard alive(watched_guard);
  uint64_t most = 0;
  for (const Scheduler& each : watched) {
    const uint64_t now = kb_emu_queued_ns(each.number);
    most = std::max(most, now - std::min(now, each.queued_ns));
  }
  return nanoseconds(most);
}

struct Search {
  uintptr_t inside;
  uintptr_t begin;
  uintptr_t end;
};

// Finds the executable part of the library that `inside` belongs to.
int visit_library(dl_phdr_info* info, size_t, void* context) {
  auto& search = *static_cast<Search*>(context);
  bool belongs = false;
  uintptr_t begin = ~uintptr_t{0};
  uintptr_t end = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD) continue;
    const uintptr_t low = info->dlpi_addr + part.p_vaddr;
    const uintptr_t high = low + part.p_memsz;
    belongs |= low <= search.inside && search.inside < high;
    if ((part.p_flags & PF_X) == 0) continue;
    begin = std::min(begin, low);
    end = std::max(end, high);
  }
  if (!belongs) return 0;
  search.begin = begin;
  search.end = end;
  return 1;
}

}  // namespace

Watchdog::Watchdog(const Launch& launch) {
  is_overdue = is_going_on = false;
  code_begin = code_end = 0;
  if (options().limit_ms != 0) thread_ = std::thread([this, &launch] { watch(launch); });
}

Watchdog::~Watchdog() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(guard_);
    done_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

// Whether the launch ends within that time from its start.
bool Watchdog::ends_within(std::unique_lock<std::mutex>& lock, Clock::duration time) {
  for (;;) {
    const Clock::duration left = time + without_a_core() - (Clock::now() - began_);
    if (left <= Clock::duration::zero()) return false;
    if (ended_.wait_for(lock, left, [this] { return done_; })) return true;
  }
}

// Signals come until one meets the kernel's code; after some, a scheduler that runs may end the
// launch itself.
void Watchdog::watch(const Launch& launch) {
  std::unique_lock lock(guard_);
  const auto done = [this] { return done_; };
  const milliseconds limit(options().limit_ms);
  const milliseconds last = std::min(kLast, limit / 2);
  if (ends_within(lock, limit - last)) return;
  const uint64_t before = rounds();
  if (ends_within(lock, limit)) return;
  is_going_on = rounds() != before;
  // What the kernel's lambda is described by lies in the step's library; that of translated PTX in
  // this one, where locks may be held.
  const void* const translated = translated_code();
  const void* const inside = translated ? translated : &launch.body.target_type();
  Search search{reinterpret_cast<uintptr_t>(inside), 0, 0};
  dl_iterate_phdr(visit_library, &search);
  code_begin = search.begin;
  code_end = search.end;
  for (int signals = 0; !ended_.wait_for(lock, kInterval, done); ++signals) {
    if (signals == kSignals) is_overdue = true;
    const std::lock_guard alive(watched_guard);
    for (const Scheduler& each : watched) pthread_kill(each.thread, kOverdueSignal);
  }
}

bool overdue() {
  return is_overdue.load(std::memory_order_relaxed);
}

void note_round() {
  own_rounds.store(own_rounds.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

bool goes_on() {
  return is_going_on.load(std::memory_order_relaxed);
}

Watched::Watched() {
  // gettid is new in glibc 2.30.
  const auto number = static_cast<int>(syscall(SYS_gettid));
  const uint64_t before = options().limit_ms != 0 ? kb_emu_queued_ns(number) : 0;
  const std::lock_guard lock(watched_guard);
  watched.push_back({pthread_self(), &own_rounds, number, before});
}

Watched::~Watched() {
  const std::lock_guard lock(watched_guard);
  std::erase_if(watched, [](const Scheduler& each) {
    return pthread_equal(each.thread, pthread_self()) != 0;
  });
}

// Elsewhere a lock may be held: the handler leaves the code alone.
bool in_overdue_code(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  return code_begin <= at && at < code_end;
}

}  // namespace kb::emu
