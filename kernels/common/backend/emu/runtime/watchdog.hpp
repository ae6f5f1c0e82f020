// The limit of a launch, and the OS threads that it concerns.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "core.hpp"

namespace kb::emu {

// Ends a launch that lasts too long (Options::limit_ms): a runner that comes back to its scheduler
// asks `overdue`; code of the kernel that never does is interrupted by a signal. Time that a
// scheduler has waited for a core does not count.
class Watchdog {
 public:
  explicit Watchdog(const Launch& launch);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  void watch(const Launch& launch);
  bool ends_within(std::unique_lock<std::mutex>& lock, Clock::duration time);
  std::mutex guard_;
  std::condition_variable ended_;
  bool done_ = false;
  Clock::time_point began_ = Clock::now();
  std::thread thread_;
};

// Whether the launch in progress has lasted too long; if so, whether it has gone on until then.
bool overdue();
bool goes_on();
// Threads have run in a pass of this OS thread's scheduler.
void note_round();

// An OS thread that runs clusters, for as long as it does.
class Watched {
 public:
  Watched();
  ~Watched();
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
};

// Whether an address is in the code of the launch that is overdue: there, no lock is held.
bool in_overdue_code(const void* address);

}  // namespace kb::emu
