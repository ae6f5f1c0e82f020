// Livelock. A CUDA thread makes progress with every access to memory that is volatile or atomic
// (CUDA programming guide, "CUDA C++ Execution model"), so that no rule of the hardware ends a
// program in which threads only undo what the others have done. It is known by the state: of words
// that strong accesses touch each has had a few values only, all other memory a few states, no
// thread has ended, nothing is pending, and everybody has gone round often.
// Assumption: then registers do not count towards an end either. Counters of retries are more than
// a few values: such loops end by --timeout alone.
#include "livelock.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "idle.hpp"
#include "launch.hpp"
#include "regions.hpp"
#include "runner.hpp"

namespace kb::emu {

namespace {

constexpr size_t kFewValues = 4, kMostWords = 1u << 12, kFewStates = 4, kStates = 16;
// Between two looks at all memory; of each thread, in all.
constexpr uint32_t kSpinsBetween = 1u << 16, kSpinsOfEach = 64;
// Of memory that is looked at.
constexpr uint64_t kMostBytes = uint64_t{64} << 20;

std::mutex guard;
std::atomic<bool> watching{false};
std::atomic<bool> livelock{false}, livelock_changes{false};
std::unordered_map<const void*, std::vector<uint64_t>> words;
std::vector<uint64_t> states;
std::set<const Runner*> going_round;
uint32_t spins = 0;

bool start_anew() {
  words.clear();
  states.clear();
  going_round.clear();
  spins = 0;
  return false;
}

// Of everything but the words that strong accesses have touched.
uint64_t state_of(std::byte* begin, uint64_t bytes, const std::vector<uintptr_t>& touched,
                  uint64_t state) {
  const auto first = reinterpret_cast<uintptr_t>(begin) & ~uintptr_t{7};
  const auto end = (reinterpret_cast<uintptr_t>(begin) + bytes) & ~uintptr_t{7};
  auto next = std::lower_bound(touched.begin(), touched.end(), first);
  for (uintptr_t at = first; at < end; at += 8) {
    if (next != touched.end() && *next == at) {
      ++next;
      continue;
    }
    state = (state ^ *reinterpret_cast<const volatile uint64_t*>(at)) * 0x100000001b3u;
  }
  return state;
}

// Whether few enough bytes are there.
bool see_state(const Runner& runner) {
  std::vector<uintptr_t> touched;
  for (const auto& [at, values] : words) touched.push_back(reinterpret_cast<uintptr_t>(at) & ~7u);
  std::sort(touched.begin(), touched.end());
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  uint64_t bytes = 0, state = 0xcbf29ce484222325u;
  const auto add = [&](std::byte* begin, uint64_t size) {
    bytes += size;
    if (bytes <= kMostBytes) state = state_of(begin, size, touched, state);
  };
  each_writable_region(add);
  runner.each_shared_memory(add);
  if (bytes > kMostBytes) return false;
  states.push_back(state);
  return true;
}

}  // namespace

bool watch_spin(const void* at, uint32_t bytes, uint64_t value, Pc pc) {
  Thread& thread = self();
  ++thread.spins;
  thread.spin = {.pc = pc, .at = at, .bytes = bytes};
  const std::lock_guard lock(guard);
  watching = true;
  std::vector<uint64_t>& seen = words[at];
  if (std::find(seen.begin(), seen.end(), value) == seen.end()) {
    seen.push_back(value);
    states.clear();
    if (seen.size() > kFewValues || words.size() > kMostWords) return start_anew();
  }
  if (++spins % kSpinsBetween != 0) return true;
  if (!see_state(*current_runner)) return start_anew();
  if (states.size() < kStates) return true;
  if (std::set<uint64_t>(states.begin(), states.end()).size() > kFewStates) return start_anew();
  if (!current_runner->all_spin(kSpinsOfEach)) {
    current_runner->hold_up_none();
    return true;
  }
  going_round.insert(current_runner);
  if (going_round.size() + idle_runners() < os_threads_running()) return true;
  livelock_changes = std::any_of(words.begin(), words.end(),
                                 [](const auto& each) { return each.second.size() > 1; });
  livelock = true;
  return true;
}

void end_spinning() {
  if (!watching) return;
  const std::lock_guard lock(guard);
  watching = false;
  start_anew();
}

bool livelocked() {
  return livelock.load(std::memory_order_relaxed);
}

bool livelock_changes_words() {
  return livelock_changes;
}

void forget_spins() {
  livelock = false;
  end_spinning();
}

}  // namespace kb::emu
