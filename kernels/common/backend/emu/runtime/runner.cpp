#include "runner.hpp"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "launch.hpp"
#include "watchdog.hpp"

namespace kb::emu {

thread_local Thread* current_thread = nullptr;
thread_local Runner* current_runner = nullptr;
thread_local const Cta* current_task_cta = nullptr;

uint64_t split_mix(uint64_t& state) {
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

Resources::Resources(uint32_t threads, uint32_t ctas)
    : threads(threads), ctas(ctas), stacks(threads) {
  // One CTA's shared memory per stride; everything behind it stays unmapped and faults.
  shared_mapping = (ctas + 1) * kSharedStride;
  void* memory =
      mmap(nullptr, shared_mapping, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto* base = static_cast<std::byte*>(memory) + kSharedStride / 2;
  for (uint32_t i = 0; i < ctas; ++i) {
    const size_t bytes = (kMaxSharedBytes + 4095) / 4096 * 4096;
    if (mprotect(base + i * kSharedStride, bytes, PROT_READ | PROT_WRITE) != 0) {
      throw std::bad_alloc();
    }
  }
  shared = base;
}

Resources::~Resources() {
  if (shared != nullptr) munmap(shared - kSharedStride / 2, shared_mapping);
}

Runner::Runner(Launch& launch, std::unique_ptr<Resources> resources, uint32_t clusters)
    : launch_(launch), resources_(std::move(resources)), clusters_(clusters) {
  fibers_.resize(resources_->threads);
  for (size_t i = 0; i < fibers_.size(); ++i) fibers_[i].stack = resources_->stacks.at(i);
}

bool Runner::owns_shared_guard(const void* address) const {
  const auto* byte = static_cast<const std::byte*>(address);
  const std::byte* low = resources_->shared - kSharedStride / 2;
  return byte >= low && byte < low + resources_->shared_mapping;
}

void Runner::start(Cluster& cluster, uint32_t id, size_t slot) {
  cluster.launch = &launch_;
  cluster.id = id;
  cluster.shared_base = resources_->shared + slot * launch_.cluster * kSharedStride;
  uint64_t seed = options().seed * 0x2545f4914f6cdd1du + launch_.number * 0x9e3779b1u + id;
  split_mix(seed);
  cluster.random_state = seed;
  cluster.barrier = {};
  cluster.next_copy = 0;
  const uint32_t warps = (launch_.threads + kWarpSize - 1) / kWarpSize;
  const uint32_t threads = launch_.threads * launch_.cluster;
  cluster.components = threads + 2 * warps * launch_.cluster + kCopySlots;
  cluster.live_threads = threads;
  forget_accesses(cluster);
  if (cluster.ctas.size() != launch_.cluster) {
    cluster.ctas.clear();
    cluster.ctas.resize(launch_.cluster);
  }
  for (uint32_t rank = 0; rank < launch_.cluster; ++rank) {
    Cta& cta = cluster.ctas[rank];
    const uint32_t linear = id * launch_.cluster + rank;
    cta.cluster = &cluster;
    cta.rank = rank;
    cta.index = {linear % launch_.grid.x, linear / launch_.grid.x % launch_.grid.y,
                 linear / launch_.grid.x / launch_.grid.y};
    cta.shared = cluster.shared_base + rank * kSharedStride;
    cta.shared_bytes = launch_.shared_bytes;
    cta.shared_type = nullptr;
    std::memset(cta.shared, 0xff, launch_.shared_bytes);
    cta.live_threads = launch_.threads;
    cta.pending = 0;
    cta.barrier_index.assign(kMaxSharedBytes / 8, 0);
    cta.barriers.clear();
    for (NamedBarrier& barrier : cta.named) barrier = {};
    if (checking()) {
      const uint32_t cells = kMaxSharedBytes / 4;
      if (!cta.shared_shadow) {
        cta.shared_shadow = std::make_unique<Shadow>(cta, Shadow::Space::kShared, cells);
        cta.tmem_shadow = std::make_unique<Shadow>(cta, Shadow::Space::kTmem, 512 * 8);
      }
      cta.shared_shadow->reset();
      cta.tmem_shadow->reset();
      cta.async_view.resize(kMaxSharedBytes);
      cta.async_differs.assign(cells, 0);
    } else {
      cta.shared_shadow.reset();
      cta.tmem_shadow.reset();
    }
    cta.warps.clear();
    cta.warps.resize(warps);
    cta.threads.clear();
    cta.threads.resize(launch_.threads);
    for (uint32_t w = 0; w < warps; ++w) {
      Warp& warp = cta.warps[w];
      warp.cta = &cta;
      warp.index = w;
      warp.count = std::min(kWarpSize, launch_.threads - w * kWarpSize);
      warps_.push_back(&warp);
    }
    for (uint32_t t = 0; t < launch_.threads; ++t) {
      Thread& thread = cta.threads[t];
      thread.cta = &cta;
      thread.index = t;
      thread.lane = t % kWarpSize;
      thread.warp = &cta.warps[t / kWarpSize];
      if (thread.lane == 0) thread.warp->threads = &thread;
      thread.component = rank * launch_.threads + t;
      thread.fiber = &fibers_[slot * threads + thread.component];
      if (checking()) {
        thread.knows.seen.at.assign(cluster.components, 0);
        thread.knows.published.at.assign(cluster.components, 0);
        thread.knows.seen.at[thread.component] = 1;
      }
      prepare(*thread.fiber, [] { current_runner->thread_main(); });
    }
    start_tma(cta);
    start_tensor(cta);
  }
  live_ += threads;
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

void Runner::thread_main() {
  try {
    launch_.body();
  } catch (const std::exception& error) {
    end_launch({.kind = Class::kCrash, .text = std::string("the kernel threw: ") + error.what()});
  }
  Thread& thread = *current_thread;
  thread.exited = true;
  --live_;
  --thread.cta->live_threads;
  --thread.cta->cluster->live_threads;
  yield_to_scheduler();
  __builtin_unreachable();
}

void Runner::yield_to_scheduler() {
  kb_emu_switch(&(*current_)->fiber->stack_pointer, scheduler_);
}

void Runner::resume(Thread& thread) {
  thread.wait.kind = Wait::Kind::kNone;
  *current_ = &thread;
  ++switches_;
  on_fiber_ = true;
  kb_emu_switch(&scheduler_, thread.fiber->stack_pointer);
  on_fiber_ = false;
  *current_ = nullptr;
  if (thread.exited && thread.cta->live_threads == 0 && !abandoned()) finish(*thread.cta);
}

void Runner::finish(Cta& cta) {
  const uint64_t before = findings_count();
  outside_threads(cta, [&cta] {
    check_tma_at_exit(cta);
    check_tensor_at_exit(cta);
    check_barriers_at_exit(cta);
  });
  if (cta.pending == 0 || findings_count() != before) return;
  outside_threads(cta, [&cta] {
    report({.kind = Class::kExit,
            .text = "a CTA exits with " + std::to_string(cta.pending) +
                    " asynchronous operations in flight"});
  });
}

bool Runner::runnable(Thread& thread) {
  if (thread.exited) return false;
  const Wait& wait = thread.wait;
  if (wait.kind == Wait::Kind::kNone || wait.kind == Wait::Kind::kYield) return true;
  // Predicates look at self(): a fiber's wait is its own.
  *current_ = &thread;
  const bool ready = wait.ready(wait.context);
  *current_ = nullptr;
  return ready;
}

bool Runner::run_warp(Warp& warp, uint32_t first_lane) {
  bool any = false;
  for (uint32_t i = 0; i < warp.count; ++i) {
    uint32_t lane = first_lane + i;
    if (lane >= warp.count) lane -= warp.count;
    Thread& thread = warp.threads[lane];
    if (!runnable(thread)) continue;
    any = true;
    resume(thread);
    if (abandoned()) return true;
  }
  return any;
}

bool Runner::pass_plain() {
  bool any = false;
  for (Warp* warp : warps_) {
    any |= run_warp(*warp, 0);
    if (abandoned()) return true;
  }
  return any;
}

uint32_t Runner::tasks_available() const {
  return static_cast<uint32_t>(unordered_.size()) + in_order_pending_;
}

bool Runner::run_a_task() {
  uint32_t ready_pipes = 0;
  for (const InOrder& queue : in_order_) ready_pipes += !queue.tasks.empty();
  const uint32_t choices = static_cast<uint32_t>(unordered_.size()) + ready_pipes;
  if (choices == 0) return false;
  uint32_t pick = random(choices);
  if (pick < unordered_.size()) {
    Pending chosen = std::move(unordered_[pick]);
    unordered_[pick] = std::move(unordered_.back());
    unordered_.pop_back();
    if (!chosen.outlives) --chosen.cta->pending;
    outside_threads(*chosen.cta, chosen.task);
    return true;
  }
  pick -= static_cast<uint32_t>(unordered_.size());
  for (InOrder& queue : in_order_) {
    if (queue.tasks.empty() || pick-- > 0) continue;
    Task task = std::move(queue.tasks.front());
    queue.tasks.pop_front();
    --in_order_pending_;
    --queue.warp->cta->pending;
    outside_threads(*queue.warp->cta, task);
    return true;
  }
  return false;
}

bool Runner::pass_checked() {
  // Early, late and mixed completion find different faults; a seed draws one of them.
  const uint32_t tasks = tasks_available();
  if (tasks > 0 && style_ != Style::kLate) {
    if (style_ == Style::kEager || random(4) == 0) return run_a_task();
  }
  const auto count = static_cast<uint32_t>(warps_.size());
  const uint32_t first = random(count);
  // One that polls memory goes on for ever: what it polls for must come at last.
  const uint32_t held_up = random(4096) == 0 ? count : held_up_;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t index = (first + i) % count;
    if (index == held_up) continue;
    Warp& warp = *warps_[index];
    if (run_warp(warp, random(warp.count))) return true;
  }
  if (run_a_task()) return true;
  if (held_up >= count) return false;
  Warp& warp = *warps_[held_up];
  return run_warp(warp, random(warp.count));
}

uint32_t Runner::random(uint32_t bound) {
  return static_cast<uint32_t>((split_mix(random_state_) >> 32) * bound >> 32);
}

bool Runner::wait_for_other_clusters() {
  // Only a thread that polls global memory can be helped by a cluster of another OS thread.
  bool polls = false;
  for (Cluster& cluster : clusters_) {
    for (Cta& cta : cluster.ctas) {
      for (Thread& thread : cta.threads) {
        polls |= !thread.exited && thread.wait.kind == Wait::Kind::kGlobal;
      }
    }
  }
  if (!polls || !others_run()) return false;
  sched_yield();
  return true;
}

void Runner::run(const std::vector<uint32_t>& ids) {
  current_runner = this;
  current_ = &current_thread;
  on_fiber_ = false;
  warps_.clear();
  live_ = 0;
  unordered_.clear();
  in_order_.clear();
  in_order_pending_ = 0;
  for (size_t i = 0; i < ids.size(); ++i) start(clusters_[i], ids[i], i);
  random_state_ = clusters_[0].random_state ^ 0x5851f42d4c957f2du;
  const uint32_t drawn = random(4);
  style_ = drawn == 0 ? Style::kLate : drawn == 1 ? Style::kEager : Style::kMixed;
  // Half of the schedules let one warp wait until no other can go on: others come round a ring
  // meanwhile, and a waiter that can be lapped is.
  held_up_ = random(2 * static_cast<uint32_t>(warps_.size()));
  if (sigsetjmp(recovery_, 1) == 0) {
    while (live_ > 0 && !abandoned()) {
      if (overdue()) {
        report_hang(clusters_);
        break;
      }
      if (checking() ? pass_checked() : pass_plain()) continue;
      if (wait_for_other_clusters()) continue;
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

void Runner::submit(Task task, bool outlives) {
  // Tasks submit tasks, too: a commit its arrivals.
  Cta* cta = current_thread != nullptr ? current_thread->cta : const_cast<Cta*>(current_task_cta);
  if (!outlives) ++cta->pending;
  unordered_.push_back({cta, outlives, std::move(task)});
}

void Runner::submit_in_order(Warp& warp, Pipe pipe, Task task) {
  ++warp.cta->pending;
  ++in_order_pending_;
  for (InOrder& queue : in_order_) {
    if (queue.warp == &warp && queue.pipe == pipe) {
      queue.tasks.push_back(std::move(task));
      return;
    }
  }
  in_order_.push_back({&warp, pipe, {}});
  in_order_.back().tasks.push_back(std::move(task));
}

bool Runner::pipe_idle(const Warp& warp, Pipe pipe) const {
  for (const InOrder& queue : in_order_) {
    if (queue.warp == &warp && queue.pipe == pipe) return queue.tasks.empty();
  }
  return true;
}

void Runner::faulted() {
  siglongjmp(recovery_, 1);
}

void submit(Task task, bool outlives) {
  if (!checking()) {
    task();
    return;
  }
  current_runner->submit(std::move(task), outlives);
}

void submit_in_order(Pipe pipe, Task task) {
  if (!checking()) {
    task();
    return;
  }
  current_runner->submit_in_order(*self().warp, pipe, std::move(task));
}

bool pipe_idle(const Warp& warp, Pipe pipe) {
  return current_runner->pipe_idle(warp, pipe);
}

Thread& self() {
  return *current_thread;
}

void suspend(const Wait& wait) {
  Thread& thread = self();
  thread.wait = wait;
  current_runner->yield_to_scheduler();
}

void interleave() {
  if (!checking()) return;
  if (self().cta->cluster->random(8) == 0) suspend({.kind = Wait::Kind::kYield});
}

uint32_t Cluster::random(uint32_t bound) {
  return static_cast<uint32_t>((split_mix(random_state) >> 32) * bound >> 32);
}

}  // namespace kb::emu
