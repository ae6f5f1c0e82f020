// A thread that stands for the GPU, for a host that waits without a call. While the host polls
// memory it does what is pending; where a kernel there can only wait for the host, the host goes
// on, and the kernel when the host polls again or waits for it. One of the two goes on at a time.
//
// Of a host that waits for a function of its own, by an object of C++ say, no access tells: the
// function is called once the host has long been silent.
#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "order.hpp"

namespace kb::cuda {

namespace {

std::mutex passing;
std::condition_variable passed;
bool gpu_has_turn = false;
uint64_t turns = 0;         // how often it has been handed over
bool kernel_waits = false;  // for the host
bool host_blocked = false;
thread_local bool is_gpu = false;
bool streams_in_turn = false;

// Since the kernel has waited, and turns of the host in which it has done nothing.
std::atomic<size_t> acts = 0;
size_t idle_turns = 0;
constexpr size_t kMostIdleTurns = 3;
// With threads of its own they take so long at least: another one may be about to do something.
double idle_since_ms = 0;
constexpr double kIdleMs = 2000;
size_t contents = 0;
constexpr size_t kMostCompared = size_t{1} << 22;

void pass_turn(bool to_gpu) {
  turns += gpu_has_turn != to_gpu ? 1 : 0;
  gpu_has_turn = to_gpu;
  passed.notify_all();
}

// A thread that sleeps meanwhile may miss a turn that another one has passed on.
void hand_over(std::unique_lock<std::mutex>& lock, bool to_gpu) {
  pass_turn(to_gpu);
  const uint64_t mine = turns;
  passed.wait(lock, [mine] { return turns > mine; });
}

// Threads of the process that are none of the host's, but for the one that calls main.
std::mutex counting;
std::set<int> threads_known;
std::atomic<int> pauses_left = 0;
constexpr int kMostPauses = 300;
constexpr auto kPause = std::chrono::milliseconds(2);

template <typename Each>
void each_thread(const Each& each) {
  DIR* const tasks = opendir("/proc/self/task");
  while (const dirent* const found = tasks != nullptr ? readdir(tasks) : nullptr) {
    if (found->d_name[0] != '.') each(std::atoi(found->d_name));
  }
  if (tasks != nullptr) closedir(tasks);
}

void begin_gpu_thread() {
  is_gpu = true;
  const std::lock_guard lock(counting);
  threads_known.insert(static_cast<int>(syscall(SYS_gettid)));
}

// What the host and the GPU both access, as one number.
size_t shared_contents() {
  size_t all = 0;
  for (const Range& each : host_ranges()) {
    const std::string_view bytes(each.begin, std::min(each.bytes, kMostCompared));
    all = all * 31 + std::hash<std::string_view>()(bytes);
  }
  return all;
}

// Whether turns of the host lead to nothing; it also writes where it does not trap.
bool is_idle() {
  if (idle_turns <= kMostIdleTurns) return false;
  if (host_has_threads() && now_ms() - idle_since_ms < kIdleMs) return false;
  const size_t before = std::exchange(contents, shared_contents());
  if (before == contents) return true;
  idle_turns = 0;
  idle_since_ms = now_ms();
  return false;
}

// The emulator asks, in a launch that cannot go on; 0 if the host cannot help.
int host_turn() {
  if (streams_in_turn && does_one_in_turn()) return 1;
  if (!is_gpu || host_blocked || is_idle()) return 0;
  const size_t before = acts;
  watch_pending();
  order_ends();
  const size_t held = one_call.let_go();
  {
    std::unique_lock lock(passing);
    kernel_waits = true;
    hand_over(lock, false);
    kernel_waits = false;
  }
  one_call.take(held);
  unwatch();
  begin_running_again();
  idle_turns = acts == before ? idle_turns + 1 : 0;
  if (idle_turns == 0) idle_since_ms = now_ms();
  return 1;
}

// Of the host; a function that is called may end what it waits for.
std::atomic<double> silent_since_ms = 0;
constexpr double kSilenceMs = 1000, kAgainMs = 100;

}  // namespace

// CUDA says nothing of when threads of the host make their calls: work that one of them has not yet
// waited for is there for the others to be beside of.
void let_others_go_on() {
  if (is_gpu || call_site() != nullptr || pauses_left <= 0) return;
  if (!host_has_threads()) return;
  --pauses_left;
  std::this_thread::sleep_for(kPause);
}

void host_is_there() {
  if (!is_gpu) silent_since_ms = now_ms();
}

// Assumption: a host that is silent for so long while functions of its own are pending waits for
// the first of them.
void watch_for_silence() {
  host_is_there();
  std::thread([] {
    begin_gpu_thread();
    while (!main_has_ended) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      leave_if_told();
      KB_ONE_CALL;
      if (main_has_ended || now_ms() - silent_since_ms < kSilenceMs) continue;
      call_first_function();
      silent_since_ms = now_ms() - kSilenceMs + kAgainMs;
    }
  }).detach();
  const std::lock_guard lock(counting);
  each_thread([](int thread) { threads_known.insert(thread); });
  pauses_left = kMostPauses;
}

void streams_answer() {
  streams_in_turn = true;
  ask_for_turns(host_turn);
}

bool host_has_threads() {
  const std::lock_guard lock(counting);
  bool found = false;
  each_thread([&found](int thread) { found |= threads_known.count(thread) == 0; });
  return found;
}

bool is_gpu_thread() {
  return is_gpu;
}

bool kernel_waits_for_host() {
  return kernel_waits;
}

void host_acts() {
  if (!is_gpu) ++acts;
}

void gpu_goes_on(const std::function<void()>& work, bool blocks) {
  const size_t held = one_call.let_go();
  std::unique_lock lock(passing);
  host_blocked = blocks;
  if (!kernel_waits) {
    idle_turns = 0;
    idle_since_ms = now_ms();
    ask_for_turns(host_turn);
    std::thread([work] {
      begin_gpu_thread();
      work();
      const std::lock_guard ends(passing);
      pass_turn(false);
    }).detach();
  }
  hand_over(lock, true);
  lock.unlock();
  one_call.take(held);
}

}  // namespace kb::cuda
