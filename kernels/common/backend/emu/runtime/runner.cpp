// The scheduler: which fiber runs next, and when what is asynchronous completes. Without the
// checker warps run in turn and nothing is asynchronous; with it a seed draws everything
// (DESIGN.md).
#include "runner.hpp"

#include <sched.h>

#include <algorithm>
#include <bit>

#include "api_ptx.hpp"
#include "grids.hpp"
#include "idle.hpp"
#include "launch.hpp"
#include "timing.hpp"
#include "trace.hpp"
#include "watchdog.hpp"

namespace kb::emu {

namespace {

// Clusters that are interleaved, if CTAs interact: enough that some are behind and some ahead, few
// enough that their stacks and shared memory stay in the caches.
constexpr uint32_t kTogether = 8;
// What a draw adds to the state.
constexpr uint64_t kDrawn = 0x9e3779b97f4a7c15u;
// Threads that poll look again one pass in so many, though others can run.
constexpr uint32_t kPassesBetweenLooks = 64;

}  // namespace

thread_local Thread* current_thread = nullptr;
thread_local Runner* current_runner = nullptr;
thread_local const Cta* current_task_cta = nullptr;

// SplitMix64: the next number of a sequence.
uint64_t split_mix(uint64_t& state) {
  uint64_t z = state += kDrawn;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Runs what belongs to no thread; a finding that ends the launch ends it there.
template <typename Body>
void Runner::outside_threads(const Cta& cta, const Body& body) {
  current_task_cta = &cta;
  try {
    body();
  } catch (const Abandon&) {
  }
  current_task_cta = nullptr;
}

// A fiber's first function. It never returns: the scheduler does not come back to a thread that has
// exited.
void Runner::thread_main() {
  try {
    (*current_)->cta->cluster->launch->body();
  } catch (const std::exception& error) {
    end_launch({.kind = Class::kCrash, .text = std::string("the kernel threw: ") + error.what()});
  }
  Thread& thread = *current_thread;
  timed_end(thread);
  thread.exited = true;
  thread.warp->exited |= 1u << thread.lane;
  progressed();
  --live_;
  --thread.cta->live_threads;
  --thread.cta->cluster->live_threads;
  if (runs_ptx()) {
    excuse_from_collectives(thread);
    excuse_from_barriers(thread);
  }
  yield_to_scheduler();
  __builtin_unreachable();
}

// From a fiber; returns when the scheduler resumes it.
void Runner::yield_to_scheduler() {
  kb_emu_switch(&(*current_)->fiber->stack_pointer, scheduler_);
}

// Runs a thread until it gives way. The last of a CTA to exit leaves what must be true then to be
// checked.
void Runner::resume(Thread& thread) {
  // To look again is not to do something.
  if (idle_ && !looks_again_) end_idleness();
  thread.wait.kind = Wait::Kind::kNone;
  *current_ = &thread;
  ++switches_;
  on_fiber_ = true;
  kb_emu_switch(&scheduler_, thread.fiber->stack_pointer);
  on_fiber_ = false;
  *current_ = nullptr;
  if (thread.exited && thread.cta->live_threads == 0 && !abandoned()) finish(*thread.cta);
}

// A CTA without threads: what it had to free or wait for.
void Runner::finish(Cta& cta) {
  cta_completed(cta);
  const uint64_t before = findings_count();
  outside_threads(cta, [&cta] {
    check_tma_at_exit(cta);
    check_copies_at_exit(cta);
    check_tensor_at_exit(cta);
    check_barriers_at_exit(cta);
    check_accesses_afar(cta);
    check_wgmma_at_exit(cta);
  });
  if (cta.pending == 0 || findings_count() != before) return;
  outside_threads(cta, [this, &cta] {
    for (const auto& [pc, count] : in_flight(cta)) {
      report({.kind = Class::kExit,
              .pc = pc,
              .text = count == 1 ? "a CTA exits with this asynchronous operation in flight"
                                 : "a CTA exits with " + std::to_string(count) +
                                       " of these asynchronous operations in flight"});
    }
  });
}

// How many operations of a CTA have been issued where and are not complete.
std::map<Pc, uint32_t> Runner::in_flight(const Cta& cta) const {
  std::map<Pc, uint32_t> counts;
  const auto count = [&](const Pending& each) {
    if (each.cta == &cta && !each.outlives) ++counts[each.pc];
  };
  std::for_each(unordered_.begin(), unordered_.end(), count);
  for (const InOrder& queue : in_order_) {
    std::for_each(queue.tasks.begin(), queue.tasks.end(), count);
  }
  return counts;
}

// Whether a thread could go on if it were resumed.
bool Runner::runnable(Thread& thread) {
  if (thread.exited) {
    thread.warp->asleep |= 1u << thread.lane;
    return false;
  }
  const Wait& wait = thread.wait;
  if (wait.kind == Wait::Kind::kNone || wait.kind == Wait::Kind::kYield) return true;
  // Predicates look at self(): a fiber's wait is its own.
  *current_ = &thread;
  const bool ready = wait.ready(wait.context);
  *current_ = nullptr;
  if (!ready && wait.woken) thread.sleep();
  return ready || (wait.polls && looks_again_);
}

// Lanes one after another, from `first_lane` on: the order within a warp is open, too.
bool Runner::run_warp(Warp& warp, uint32_t first_lane) {
  bool any = false;
  for (uint32_t i = 0; i < warp.count; ++i) {
    uint32_t lane = first_lane + i;
    if (lane >= warp.count) lane -= warp.count;
    if ((warp.asleep >> lane & 1) != 0) continue;
    Thread& thread = warp.threads[lane];
    if (!runnable(thread)) continue;
    any = true;
    resume(thread);
    if (abandoned()) return true;
  }
  if (warp.asleep == all_lanes(warp))
    awake_[warp.number / 64] &= ~(uint64_t{1} << warp.number % 64);
  return any;
}

void Thread::sleep() {
  warp->asleep |= 1u << lane;
  warp->waiting[static_cast<uint32_t>(wait.kind)] |= 1u << lane;
}

void Warp::wake(uint32_t lanes) {
  if ((asleep & lanes) == 0) return;
  asleep &= ~lanes;
  current_runner->may_run(number);
}

// How many warps from this one on, before `end`, have all their lanes asleep.
uint32_t Runner::asleep_from(uint32_t warp, uint32_t end) const {
  const uint32_t first = warp;
  while (warp < end) {
    const uint64_t rest = awake_[warp / 64] >> warp % 64;
    if (rest != 0) {
      warp += static_cast<uint32_t>(std::countr_zero(rest));
      break;
    }
    warp += 64 - warp % 64;
  }
  return std::min(warp, end) - first;
}

// Without the checker: everybody who can, in turn.
bool Runner::pass_plain() {
  bool any = false;
  const auto count = static_cast<uint32_t>(warps_.size());
  for (uint32_t i = asleep_from(0, count); i < count; i += 1 + asleep_from(i + 1, count)) {
    any |= run_warp(*warps_[i], 0);
    if (abandoned()) return true;
  }
  return any;
}

uint32_t Runner::tasks_available() const {
  return static_cast<uint32_t>(unordered_.size()) + in_order_pending_;
}

// One of the unordered tasks, or the oldest of one pipe.
bool Runner::run_a_task() {
  uint32_t ready_pipes = 0;
  for (const InOrder& queue : in_order_) ready_pipes += !queue.tasks.empty();
  const uint32_t choices = static_cast<uint32_t>(unordered_.size()) + ready_pipes;
  if (choices == 0) return false;
  uint32_t pick = choose(choices, 0);
  if (pick < unordered_.size()) {
    Pending chosen = std::move(unordered_[pick]);
    progressed();
    unordered_[pick] = std::move(unordered_.back());
    unordered_.pop_back();
    if (!chosen.outlives) --chosen.cta->pending;
    outside_threads(*chosen.cta, chosen.task);
    return true;
  }
  pick -= static_cast<uint32_t>(unordered_.size());
  for (InOrder& queue : in_order_) {
    if (queue.tasks.empty() || pick-- > 0) continue;
    const Pending oldest = std::move(queue.tasks.front());
    queue.tasks.pop_front();
    progressed();
    --in_order_pending_;
    --oldest.cta->pending;
    outside_threads(*oldest.cta, oldest.task);
    return true;
  }
  return false;
}

// One step of a checked schedule: a task or a warp, as the seed draws; false if nothing can run.
bool Runner::pass_checked() {
  // Early, late and mixed completion find different faults; a seed draws one of them.
  const uint32_t tasks = tasks_available();
  if (tasks > 0 && style_ != Style::kLate) {
    if (style_ == Style::kEager || one_in(4)) return run_a_task();
  }
  const auto count = static_cast<uint32_t>(warps_.size());
  const uint32_t next = (last_ + 1) % count;
  const uint32_t which = decisions_;
  const size_t place = decisions_kept();
  const uint32_t first = decided(evenly_ ? random_awake() : random(count), next, count);
  // One that polls memory goes on for ever: what it polls for must come at last.
  const uint32_t held_up = one_in(4096) ? count : held_up_;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t index = (first + i) % count;
    const uint32_t asleep = deciding ? 0 : asleep_from(index, std::min(count, index + count - i));
    if (asleep > 0) {
      // As if each had been asked, with its draw.
      random_state_ += kDrawn * (asleep - (held_up - index < asleep));
      i += asleep - 1;
      continue;
    }
    if (index == held_up) continue;
    if (!run_a_lane_first(*warps_[index])) continue;
    last_ = index;
    // Those before it cannot run: from the usual one on, it may have been the first that can.
    const bool usual = (next + count - first) % count <= i;
    if (deciding) amend_decision(place, scheduler_decision(which), index, usual);
    return true;
  }
  if (deciding) amend_decision(place, scheduler_decision(which), 0, true);
  if (run_a_task()) return true;
  if (held_up >= count) return false;
  last_ = held_up;
  return run_a_lane_first(*warps_[held_up]);
}

// One of the warps that are awake; any if none is.
uint32_t Runner::random_awake() {
  uint32_t awake = 0;
  for (uint64_t bits : awake_) awake += static_cast<uint32_t>(std::popcount(bits));
  if (awake == 0) return random(static_cast<uint32_t>(warps_.size()));
  uint32_t left = random(awake);
  uint32_t word = 0;
  while (left >= static_cast<uint32_t>(std::popcount(awake_[word]))) {
    left -= static_cast<uint32_t>(std::popcount(awake_[word++]));
  }
  uint64_t bits = awake_[word];
  for (; left > 0; --left) bits &= bits - 1;
  return 64 * word + static_cast<uint32_t>(std::countr_zero(bits));
}

// A warp's lanes, from a drawn one on; false if none could run, and then nothing was decided.
bool Runner::run_a_lane_first(Warp& warp) {
  const uint32_t which = decisions_;
  const size_t place = decisions_kept();
  if (run_warp(warp, choose(warp.count, 0))) return true;
  if (deciding) {
    amend_decision(place, scheduler_decision(which), 0, true);
    decisions_ = which;
  }
  return false;
}

// What the seed draws of `bound` choices, or what was decided in its place.
uint32_t Runner::choose(uint32_t bound, uint32_t usual) {
  return decided(random(bound), usual, bound);
}

uint32_t Runner::decided(uint32_t drawn, uint32_t usual, uint32_t bound) {
  return deciding ? decide(scheduler_decision(decisions_++), drawn, usual, bound) : drawn;
}

// One time in n; usually not.
bool Runner::one_in(uint32_t n) {
  return decided(random(n) == 0, 0, 2) != 0;
}

Decision Runner::scheduler_decision(uint32_t number) const {
  return {.launch = static_cast<uint32_t>(launch_.number),
          .cluster = clusters_[0].id,
          .who = kScheduler,
          .number = number};
}

uint32_t Runner::random(uint32_t bound) {
  return static_cast<uint32_t>((split_mix(random_state_) >> 32) * bound >> 32);
}

// Whether there is hope that somebody else makes progress possible. `running`, `since`: OS threads
// and activity() when the pass began in which nothing here could run: what others wrote then may
// not have been there yet.
bool Runner::wait_for_other_clusters(uint32_t running, uint64_t since) {
  // Only a thread that polls global memory can be helped by a cluster of another OS thread.
  if (running <= 1 || highest_polling() < 0) return false;
  idle_ = true;
  if (all_idle(*this, since, running)) return false;
  sched_yield();
  return true;
}

// Starts what a cluster here may wait for; whether it did, or an OS thread may just have.
bool Runner::start_waited_for(uint64_t since) {
  const int64_t polling = highest_polling();
  if (polling <= 0) return false;
  return start_another(launch_.next_cluster_below(polling, *this)) ||
         wait_for_other_clusters(os_threads_running(), since);
}

// The clusters with these ids, from their start to their end.
void Runner::run(const std::vector<uint32_t>& ids) {
  current_runner = this;
  current_ = &current_thread;
  on_fiber_ = false;
  warps_.clear();
  awake_.clear();
  live_ = 0;
  unordered_.clear();
  in_order_.clear();
  in_order_pending_ = 0;
  started_ = 0;
  for (uint32_t id : ids) start(id);
  random_state_ = clusters_[0].random_state ^ 0x5851f42d4c957f2du;
  decisions_ = 0;
  owes_help_ = false;
  polls_unhelped_ = quiet_rounds_ = passes_ = spins_ = 0;
  looks_again_ = false;
  last_ = static_cast<uint32_t>(warps_.size()) - 1;
  // Of four draws one is late, one eager and two are mixed; usual is eager.
  const uint32_t style = choose(4, 1);
  style_ = style == 0 ? Style::kLate : style == 1 ? Style::kEager : Style::kMixed;
  // Half of the schedules let one warp wait until no other can go on: others come round a ring
  // meanwhile, and a waiter that can be lapped is.
  const auto warps = static_cast<uint32_t>(warps_.size());
  held_up_ = choose(2 * warps, warps);
  // The warp behind many that sleep is drawn for each of them: in half of the schedules, so that a
  // role comes far ahead of those behind it; in the others roles keep abreast.
  evenly_ = one_in(2);
  if (sigsetjmp(recovery_, 1) == 0) {
    while (live_ > 0 && !abandoned()) {
      if (overdue() || livelocked()) {
        report_hang(clusters_);
        break;
      }
      const uint32_t running = os_threads_running();
      const uint64_t since = activity();
      if (owes_help_) help();
      looks_again_ = ++passes_ % kPassesBetweenLooks == 0;
      const bool ran = checking() ? pass_checked() : pass_plain();
      if (ran) note_round();
      looks_again_ = false;
      if (tracing) trace_barriers(clusters_);
      if (launch_.together && launch_.interacts && started_ < kTogether &&
          start_another(launch_.next_cluster(true))) {
        continue;
      }
      if (ran) continue;
      if (wait_for_other_clusters(running, since)) continue;
      if (start_waited_for(since)) continue;
      if (look_again() || host_goes_on()) continue;
      report_hang(clusters_);
    }
    // Operations that outlive their CTA were reported; they still have effects.
    while (!abandoned() && run_a_task()) {
    }
  } else {
    report_fault(*this, clusters_);
  }
  current_thread = nullptr;
  current_runner = nullptr;
}

// Counts as pending for its CTA, whose exit is then too early.
void Runner::submit(Pc pc, Task task, bool outlives) {
  // Tasks submit tasks, too: a commit its arrivals.
  Cta* cta = current_thread != nullptr ? current_thread->cta : const_cast<Cta*>(current_task_cta);
  if (tracing) task = traced(std::move(task), -1);
  if (!outlives) ++cta->pending;
  unordered_.push_back({cta, outlives, pc, std::move(task)});
}

// A queue for each warp and pipe that has ever had a task.
void Runner::submit_in_order(Warp& warp, Pipe pipe, Pc pc, Task task) {
  if (tracing) task = traced(std::move(task), static_cast<int>(pipe));
  ++warp.cta->pending;
  ++in_order_pending_;
  Pending pending{warp.cta, false, pc, std::move(task)};
  for (InOrder& queue : in_order_) {
    if (queue.warp == &warp && queue.pipe == pipe) {
      queue.tasks.push_back(std::move(pending));
      return;
    }
  }
  in_order_.push_back({&warp, pipe, {}});
  in_order_.back().tasks.push_back(std::move(pending));
}

bool Runner::pipe_idle(const Warp& warp, Pipe pipe) const {
  for (const InOrder& queue : in_order_) {
    if (queue.warp == &warp && queue.pipe == pipe) return queue.tasks.empty();
  }
  return true;
}

// From a signal handler on a fiber: back to `run`, which gives the fiber up.
void Runner::faulted() {
  siglongjmp(recovery_, 1);
}

void submit(Pc pc, Task task, bool outlives) {
  current_runner->progressed();
  if (!checking()) {
    task();
    return;
  }
  current_runner->submit(pc, std::move(task), outlives);
}

void submit_in_order(Pipe pipe, Pc pc, Task task) {
  current_runner->progressed();
  if (!checking()) {
    task();
    return;
  }
  current_runner->submit_in_order(*self().warp, pipe, pc, std::move(task));
}

bool pipe_idle(const Warp& warp, Pipe pipe) {
  return current_runner->pipe_idle(warp, pipe);
}

Thread& self() {
  return *current_thread;
}

// Returns when the scheduler has found the thread ready.
void suspend(const Wait& wait) {
  Thread& thread = self();
  thread.wait = wait;
  if (wait.woken) thread.sleep();
  if (tracing) trace_wait(wait);
  current_runner->yield_to_scheduler();
  if (tracing && wait.kind != Wait::Kind::kYield) trace_resumed();
}

// One time in eight: often enough for every order to come up, seldom enough to stay fast.
void interleave() {
  if (!checking()) return;
  if (one_in(8)) suspend({.kind = Wait::Kind::kYield});
}

bool one_in(uint32_t n) {
  Thread& thread = self();
  const bool drawn = thread.cta->cluster->random(n) == 0;
  if (!deciding) return drawn;
  const Decision which{.launch = static_cast<uint32_t>(thread.cta->cluster->launch->number),
                       .cluster = thread.cta->cluster->id,
                       .who = static_cast<int32_t>(thread.component),
                       .number = thread.decisions++};
  return decide(which, drawn, 0, 2) != 0;
}

uint32_t Cluster::random(uint32_t bound) {
  return static_cast<uint32_t>((split_mix(random_state) >> 32) * bound >> 32);
}

}  // namespace kb::emu
