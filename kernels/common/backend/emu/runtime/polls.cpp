// Loops of the kernel's own that poll. Nothing says in advance that a loop does nothing else: a
// thread that sees the same again, and again, sleeps until something changes of what it looks at.
// It may also look again now and then, and when nobody else can run, so that a loop that gives up
// after a time comes to its end; what is asynchronous completes before (runner.cpp).
#include "polls.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "assumptions.hpp"
#include "global_shadow.hpp"
#include "idle.hpp"
#include "machine.hpp"
#include "runner.hpp"

namespace kb::emu {

namespace {

// That a thread looks at; beyond, the oldest is forgotten.
constexpr size_t kMostLooks = 128;
// That a thread has seen the same before it sleeps: what is asked for once more is no loop.
constexpr uint64_t kTimesUntilAsleep = 2;
// Then what it has not looked at since is no part of the loop.
constexpr uint64_t kTimesUntilSure = 64;
// If nobody else can run, those that poll look again in so many rounds or more until it is a hang;
// and so often all together: few threads go round fast.
constexpr uint32_t kQuietRounds = 1u << 10;
constexpr uint32_t kQuietPolls = 1u << 18;
// Where some thread can always run: polls until something that is pending is done.
constexpr uint32_t kPollsUntilHelped = 1u << 12;

// What the thread knows of the object by now, from this look on.
Look& noted(Polls& polls, const Look& look) {
  const auto known = std::find_if(polls.looks.begin(), polls.looks.end(),
                                  [&look](const Look& each) { return each.at == look.at; });
  if (known != polls.looks.end()) {
    if (known->seen == look.seen && known->parity == look.parity) {
      ++known->times;
      known->pc = look.pc;
      return *known;
    }
    polls.looks.clear();
  }
  if (polls.looks.size() == kMostLooks) polls.looks.erase(polls.looks.begin());
  return polls.looks.emplace_back(look);
}

// Gives way, asleep if `look` has been seen often enough.
void give_way(Thread& thread, const Look& look, Pc pc) {
  current_runner->count_poll();
  if (look.times < kTimesUntilAsleep) {
    suspend({.kind = Wait::Kind::kYield, .pc = pc});
    return;
  }
  const auto changed = [](void* polls) { return static_cast<Polls*>(polls)->changed(); };
  suspend({.kind = look.kind,
           .pc = pc,
           .object = look.offset,
           .value = look.parity,
           .ready = changed,
           .context = &thread.polls,
           .polls = true});
}

// Of a program whose host polls, too: lets it go on; false if it cannot, or nothing comes of it.
int (*host_turn)() = nullptr;
std::mutex asking_host;
std::atomic<uint64_t> turns_of_host{0};

bool waits_for_global(const Thread& thread) {
  if (thread.wait.kind == Wait::Kind::kGlobal && !thread.wait.polls) return true;
  const std::vector<Look>& looks = thread.polls.looks;
  return std::any_of(looks.begin(), looks.end(), [](const Look& each) {
    return each.kind == Wait::Kind::kGlobal && each.times > 0;
  });
}

}  // namespace

uint64_t bits_at(const void* at, uint32_t bytes) {
  if (bytes == 16) {
    const auto* words = static_cast<const uint64_t*>(at);
    const uint64_t low = bits_at(words, 8), high = bits_at(words + 1, 8);
    return low ^ (high << 32 | high >> 32);
  }
  if (bytes == 8) return __atomic_load_n(static_cast<const uint64_t*>(at), __ATOMIC_ACQUIRE);
  if (bytes == 4) return __atomic_load_n(static_cast<const uint32_t*>(at), __ATOMIC_ACQUIRE);
  uint64_t value = 0;
  std::memcpy(&value, at, bytes);
  return value;
}

bool Look::changed() const {
  if (kind == Wait::Kind::kMbarrier) return static_cast<const Barrier*>(at)->phase != seen;
  return bits_at(at, bytes) != seen;
}

bool Polls::changed() const {
  return std::any_of(looks.begin(), looks.end(), [](const Look& each) { return each.changed(); });
}

std::vector<Look> Polls::current() const {
  uint64_t most = 0;
  for (const Look& each : looks) most = std::max(most, each.times);
  std::vector<Look> found;
  for (const Look& each : looks) {
    if (each.times >= most / 4) found.push_back(each);
  }
  return found;
}

void poll(const Look& look) {
  Thread& thread = self();
  thread.polls.since_sleep = true;
  const Look mine = noted(thread.polls, look);
  if (mine.times == kTimesUntilSure) thread.polls.looks = thread.polls.current();
  if (mine.times == 0 && look.kind != Wait::Kind::kMbarrier) return;
  give_way(thread, mine, look.pc);
  if (thread.polls.changed()) {
    thread.polls.looks.clear();
    current_runner->changed();
  }
}

void polled(const void* at) {
  std::vector<Look>& looks = self().polls.looks;
  const auto here = [at](const Look& each) { return each.at == at; };
  if (std::any_of(looks.begin(), looks.end(), here)) looks.clear();
}

// A thread that sleeps without having polled since waits for a time, which comes.
void sleep_between_polls(Pc pc) {
  Thread& thread = self();
  const std::vector<Look>& looks = thread.polls.looks;
  const bool between = thread.polls.since_sleep && !looks.empty();
  thread.polls.since_sleep = false;
  give_way(thread, between ? looks.back() : Look(), pc);
}

// ---- the scheduler's part: when those that sleep look again, and what helps -------------------

// A poll that gives way, of a loop that may never sleep: because it also changes something, say.
void Runner::count_poll() {
  if (++polls_unhelped_ % kPollsUntilHelped == 0) owes_help_ = true;
}

// Something that a poll may see, or the start or the end of what may change it.
void Runner::changed() {
  quiet_rounds_ = 0;
  if (idle_) end_idleness();
}

void Runner::progressed() {
  spins_ = 0;
  end_spinning();
  changed();
}

bool Runner::all_spin(uint32_t times) const {
  const auto goes_round = [times](const Thread& thread) {
    const Wait::Kind kind = thread.wait.kind;
    const bool waits = kind != Wait::Kind::kNone && kind != Wait::Kind::kYield;
    return thread.exited || waits || thread.spins >= times;
  };
  return std::all_of(warps_.begin(), warps_.end(), [&](const Warp* warp) {
    return std::all_of(warp->threads, warp->threads + warp->count, goes_round);
  });
}

void Runner::each_shared_memory(const std::function<void(std::byte*, uint64_t)>& see) const {
  for (size_t i = 0; i < started_; ++i) {
    for (const Cta& cta : clusters_[i].ctas) see(cta.shared, cta.shared_bytes);
  }
}

void Runner::end_idleness() {
  idle_ = false;
  busy(*this);
}

// The highest id of a cluster in which a thread waits for global memory, or polls it, or -1.
int64_t Runner::highest_polling() const {
  int64_t highest = -1;
  for (const Cluster& cluster : clusters_) {
    for (const Cta& cta : cluster.ctas) {
      for (const Thread& thread : cta.threads) {
        if (!thread.exited && waits_for_global(thread))
          highest = std::max<int64_t>(highest, cluster.id);
      }
    }
  }
  return highest;
}

// For what goes on for ever without: what has been issued must complete at last, however late, and
// a cluster of lower index start.
void Runner::help() {
  owes_help_ = false;
  const int64_t polling = highest_polling();
  if (run_a_task() || polling <= 0) return;
  start_another(launch_.next_cluster_below(static_cast<uint32_t>(polling), *this));
}

// Nobody can run: threads that poll look again, as loops that give up after a time, or a number of
// times, come to their end. False if it has not helped for long, or there are none.
// Assumption: they poll for ever.
bool Runner::look_again() {
  if (quiet_rounds_++ > std::max(kQuietRounds, kQuietPolls / live_)) return false;
  looks_again_ = true;
  bool any = false;
  for (size_t i = 0; i < warps_.size() && !abandoned(); ++i) any |= run_warp(*warps_[i], 0);
  looks_again_ = false;
  return any;
}

// Nobody can run until the host writes a word, which it does when it has seen what this launch has
// released by others. Only the first of the OS threads that come to this asks it.
// PTX: 8.9: what is released at the scope of the system reaches the host.
bool Runner::host_goes_on() {
  if (host_turn == nullptr || launch_.operation == nullptr || highest_polling() < 0) return false;
  const uint64_t before = turns_of_host;
  const std::lock_guard lock(asking_host);
  if (turns_of_host == before) {
    hand_to_host();
    if (host_turn() == 0) return false;
    take_from_host();
    assume(Assumption::kHostInTurn);
    ++turns_of_host;
  }
  changed();
  return true;
}

}  // namespace kb::emu

// For the runtime of a program: who lets the host go on in the middle of a launch.
extern "C" __attribute__((visibility("default"))) void kb_emu_on_host_turn(int (*turn)()) {
  kb::emu::host_turn = turn;
}
