// Deadlocks across OS threads, found without waiting for the launch's limit of time.
#include "idle.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

namespace kb::emu {

namespace {

std::mutex guard;
std::atomic<uint64_t> changes{1};
// Of each idle runner: activity() before its last pass.
std::map<const Runner*, uint64_t> idle;

}  // namespace

uint64_t activity() {
  return changes.load();
}

bool all_idle(const Runner& runner, uint64_t since, uint32_t running) {
  const std::lock_guard lock(guard);
  const auto [found, first] = idle.try_emplace(&runner, 0);
  if (first) {
    // What it did before may have ended others' waits, which have to look again.
    ++changes;
    return false;
  }
  found->second = since;
  return idle.size() >= running && std::all_of(idle.begin(), idle.end(), [](const auto& each) {
           return each.second == changes.load();
         });
}

void busy(const Runner& runner) {
  const std::lock_guard lock(guard);
  idle.erase(&runner);
  ++changes;
}

uint32_t idle_runners() {
  const std::lock_guard lock(guard);
  return static_cast<uint32_t>(idle.size());
}

void forget_idle() {
  const std::lock_guard lock(guard);
  idle.clear();
}

}  // namespace kb::emu
