// Launches, the host side of the emulator, and its C interface. Grids, clusters and CTAs as PTX ISA
// 9.1, 2.2 has them: clusters start on free SMs, in an order that nobody promises.
#include "launch.hpp"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <numeric>
#include <thread>

#include "api_core.hpp"
#include "choices.hpp"
#include "findings.hpp"
#include "global_shadow.hpp"
#include "grids.hpp"
#include "idle.hpp"
#include "operations.hpp"
#include "regions.hpp"
#include "rt.cuh"
#include "runner.hpp"
#include "timing.hpp"
#include "trace.hpp"
#include "watchdog.hpp"

namespace kb::emu {

Options current_options;

namespace {

// What the OS threads of a launch share, beside the Launch that kernels' primitives see.
struct Progress {
  uint32_t clusters = 0;
  uint32_t slots = 0;  // clusters that start at once
  // Under `order_guard`: of the ids of these, or of all (empty: ascending); how many of the first
  // `slots` have started; the next of the rest, which start later or are canceled.
  std::vector<uint32_t> order;
  uint32_t started = 0;
  uint32_t next = 0;
  bool any_below = false;  // one of the rest may start because one of higher index waits for it
  std::atomic<uint32_t> running{0};  // OS threads with a cluster
  std::atomic<uint32_t> asking{0};   // cancellation requests
};
Progress progress;
std::mutex order_guard;

std::atomic<uint64_t> switch_count{0};
uint64_t launches = 0;
uint64_t last_serial = 0;
uint64_t serial_launched = 0;  // of the last launch
uint64_t configured_at = 0;    // the last one then
double seconds = 0;

std::mutex spare_guard;
std::vector<std::unique_ptr<Resources>> spare;

// Signals of a fiber must not be delivered on the fiber's own, perhaps exhausted, stack.
class SignalStack {
 public:
  SignalStack() : memory_(64 * 1024) {
    stack_t stack = {};
    stack.ss_sp = memory_.data();
    stack.ss_size = memory_.size();
    sigaltstack(&stack, &previous_);
  }
  ~SignalStack() { sigaltstack(&previous_, nullptr); }

 private:
  std::vector<char> memory_;
  stack_t previous_ = {};
};

// On each OS thread: one cluster after another, which may have others started beside it, or all of
// a cooperative launch at the same time.
void run_clusters(Launch& launch) {
  const SignalStack signal_stack;
  const Watched watched;
  const uint32_t resident = launch.cooperative ? progress.clusters : 1;
  uint32_t threads = launch.threads * launch.cluster;
  uint32_t ctas = launch.cluster;
  for (const auto& each : launch.beside) {
    threads = std::max(threads, each->threads * each->cluster);
    ctas = std::max(ctas, each->cluster);
  }
  Runner runner(launch, resources_for(threads * resident, ctas * resident), resident, threads,
                ctas);
  ++progress.running;
  if (launch.cooperative) {
    std::vector<uint32_t> ids(resident);
    for (uint32_t i = 0; i < resident; ++i) ids[i] = i;
    runner.run(ids);
  } else {
    while (!abandoned()) {
      const int64_t id = launch.next_cluster(false);
      if (id < 0) break;
      runner.run({static_cast<uint32_t>(id)});
    }
  }
  busy(runner);
  --progress.running;
  switch_count += runner.switches();
  runner.give_back_resources();
}

// The next of those that the first ones leave room for when they end, or -1.
int64_t later_cluster() {
  const std::lock_guard lock(order_guard);
  if (progress.next >= progress.clusters) return -1;
  const uint32_t number = progress.next++;
  return number < progress.order.size() ? progress.order[number] : number;
}

// PTX: 2.2: an order of clusters, from `first` on: ascending, descending, any, and any but for one
// that comes last.
void put_in_order(size_t first, uint32_t style, uint64_t& state) {
  const auto begin = progress.order.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = progress.order.end();
  const auto count = static_cast<size_t>(end - begin);
  if (style == 0) return;
  if (style == 1) return std::reverse(begin, end);
  for (size_t i = count; i > 1; --i) std::swap(begin[i - 1], begin[split_mix(state) % i]);
  if (style == 2) return;
  const auto late = begin + static_cast<std::ptrdiff_t>(split_mix(state) % count);
  std::rotate(late, late + 1, end);
}

constexpr uint32_t kStyles = 4;

void draw_order_of_all(uint64_t& state) {
  const auto style = static_cast<uint32_t>(split_mix(state) % kStyles);
  put_in_order(0, style, state);
}

// Of those that do not start at once, in steps; usual is ascending.
void draw_order_of_later(const Launch& launch, uint64_t state) {
  auto style = static_cast<uint32_t>(split_mix(state) % kStyles);
  const Decision which{.launch = static_cast<uint32_t>(launch.number),
                       .who = kClusterOrder,
                       .number = progress.slots};
  if (deciding) style = decide(which, style, 0, kStyles);
  put_in_order(progress.slots, style, state);
}

// Half of the schedules interleave clusters; usual is one after another.
bool draw_together(const Launch& launch, uint64_t state) {
  const auto drawn = static_cast<uint32_t>(split_mix(state) >> 63);
  const Decision which{.launch = static_cast<uint32_t>(launch.number), .who = kClusterOrder};
  return (deciding ? decide(which, drawn, 0, 2) : drawn) != 0;
}

}  // namespace

bool broken(Fact fact) {
  return current_options.broken_fact == static_cast<uint32_t>(fact);
}

uint64_t launches_begun() {
  return last_serial;
}
uint64_t launch_serial() {
  return serial_launched;
}

uint64_t new_serial() {
  note_serial(++last_serial, current_operation());
  return last_serial;
}

std::unique_ptr<Resources> resources_for(uint32_t threads, uint32_t ctas) {
  {
    const std::lock_guard lock(spare_guard);
    for (auto& each : spare) {
      if (each != nullptr && each->threads >= threads && each->ctas >= ctas) {
        std::unique_ptr<Resources> found = std::move(each);
        std::erase(spare, nullptr);
        return found;
      }
    }
  }
  return std::make_unique<Resources>(threads, ctas);
}

void give_back(std::unique_ptr<Resources> resources) {
  const std::lock_guard lock(spare_guard);
  if (spare.size() < 8) spare.push_back(std::move(resources));
}

// PTX: 2.2: CTAs start in any order, and as many at a time as fit.
// The first ones, as many as SMs hold, in the order that was drawn; the rest, which may be
// cancelled, in another one. Of translated PTX the order is of all.
// Assumption: a CTA on each SM. Several on one SM, which kernels with little shared memory get, are
// run as if on SMs of their own.
int64_t Launch::next_cluster(bool only_first) {
  {
    const std::lock_guard lock(order_guard);
    if (progress.started < progress.slots) {
      const uint32_t number = progress.started++;
      return progress.order.empty() ? number : progress.order[number];
    }
  }
  const bool shared_out = timing && progress.asking > 0;
  return only_first || shared_out ? -1 : later_cluster();
}

// CTAs may wait for those of lower index (wait.cuh), in whatever order they start.
// The runner is busy as soon as it has one: who finds none and looks again sees that.
int64_t Launch::next_cluster_below(uint32_t id, const Runner& runner) {
  const std::lock_guard lock(order_guard);
  const auto take = [&](uint32_t& next, size_t end) -> int64_t {
    if (next >= end) return -1;
    const auto first = progress.order.begin() + next;
    const auto lowest =
        std::min_element(first, progress.order.begin() + static_cast<std::ptrdiff_t>(end));
    if (*lowest >= id) return -1;
    std::iter_swap(first, lowest);
    busy(runner);
    return progress.order[next++];
  };
  if (progress.order.empty()) return -1;
  const int64_t at_once = take(progress.started, progress.slots);
  if (at_once >= 0 || !progress.any_below) return at_once;
  return take(progress.next, progress.order.size());
}

Launch& Launch::grid_of(uint32_t cluster_id) {
  Launch* found = this;
  for (const auto& each : beside) {
    if (each->first_cluster <= cluster_id) found = each.get();
  }
  return *found;
}

bool Launch::runs_beside(uint64_t of) const {
  return of == serial || std::any_of(beside.begin(), beside.end(),
                                     [of](const auto& each) { return each->serial == of; });
}

bool Launch::is_beside(const StreamOperation* other) const {
  return other != operation && !whole->beside.empty() &&
         (other == whole->operation ||
          std::any_of(whole->beside.begin(), whole->beside.end(),
                      [other](const auto& each) { return each->operation == other; }));
}

uint32_t os_threads_running() {
  return progress.running.load();
}

// clusterlaunchcontrol.try_cancel: a cluster that has not started is taken over, or nothing.
// Assumption: see try_cancel in clc.cpp.
int64_t Launch::cancel_next_cluster() {
  const uint32_t rest = progress.clusters - std::min(progress.clusters, progress.slots);
  // Running clusters take about equal shares, as they would on hardware; what is declined starts
  // later as a cluster of its own.
  const uint32_t asked = progress.asking.fetch_add(1);
  if (timing) {
    const uint32_t id = timed_share(self().cta->cluster->id, progress.slots, asked == 0);
    return id < progress.clusters ? int64_t{id} : -1;
  }
  if (checking()) {
    if (one_in(16)) return -1;
  } else if (progress.slots > 0 && asked >= rest) {
    return -1;
  }
  return later_cluster();
}

namespace {

// Refuses what the driver would refuse.
void take_form(Launch& launch, const rt::LaunchConfig& config, const CtaIndex* shape) {
  const CtaIndex extent = shape != nullptr ? *shape : CtaIndex{config.cluster, 1, 1};
  if (config.threads == 0 || config.threads > 1024 || config.grid.x == 0 || config.grid.y == 0 ||
      config.grid.z == 0 || extent.x * extent.y * extent.z == 0 || config.grid.x % extent.x != 0 ||
      config.grid.y % extent.y != 0 || config.grid.z % extent.z != 0) {
    throw rt::Error("launch: invalid configuration: grid " + std::to_string(config.grid.x) + "x" +
                    std::to_string(config.grid.y) + "x" + std::to_string(config.grid.z) +
                    ", threads " + std::to_string(config.threads) + ", cluster " +
                    std::to_string(extent.x) + "x" + std::to_string(extent.y) + "x" +
                    std::to_string(extent.z));
  }
  if (config.shared_bytes > kMaxSharedBytes) {
    throw rt::Error("launch: " + std::to_string(config.shared_bytes) +
                    " bytes of shared memory; a CTA can have " + std::to_string(kMaxSharedBytes));
  }
  if (config.cluster > 16) throw rt::Error("launch: a cluster has at most 16 CTAs");
  launch.grid = config.grid;
  launch.threads = config.threads;
  launch.cluster = config.cluster;
  launch.extent = extent;
  launch.shared_bytes = config.shared_bytes;
  launch.cooperative = config.cooperative;
}

void take_form(Launch& launch, const TranslatedGrid& grid) {
  take_form(launch, grid.config, &grid.extent);
  launch.body = grid.body;
  launch.block = grid.block;
  launch.kernel = grid.kernel;
  launch.operation = grid.operation;
}

// Behind the clusters of those before it, with a serial of its own.
void put_beside(Launch& whole, const TranslatedGrid& grid) {
  auto made = std::make_unique<Launch>();
  take_form(*made, grid);
  made->cooperative = true;
  made->whole = &whole;
  made->number = whole.number;
  made->serial = ++last_serial;
  note_serial(made->serial, grid.operation);
  made->open_unwaited = made->open_waited = made->open_strictly = made->serial;
  made->streams_since = made->serial;
  const Launch& last = whole.beside.empty() ? whole : *whole.beside.back();
  made->first_cluster = last.first_cluster + last.clusters();
  whole.beside.push_back(std::move(made));
}

// Runtime: cudaLaunchKernelEx with the attributes cluster dimension and cooperative.
// Runs the grid to its end, and throws what a finding that ended it says.
// Not modelled: a launch runs to its end before the next begins, but for grids that are given here.
// What a dependent one, or one on another stream, may overlap with is found all the same
// (grids.cpp).
void launch(Launch& current, const rt::LaunchConfig& config,
            const std::vector<TranslatedGrid>& beside) {
  const bool translated = current.block.x != 0;
  install_fault_handler();
  begin_launch_findings();
  current.number = launches++;
  current.serial = serial_launched = ++last_serial;
  if (!checking()) forget_contents();
  order_grid(current, config.dependent, config.stream);
  current.operation = current_operation();
  note_serial(current.serial, current.operation);
  progress.clusters = current.clusters();
  for (const TranslatedGrid& each : beside) {
    put_beside(current, each);
    progress.clusters += current.beside.back()->clusters();
  }
  // As many clusters as SMs hold start at once; Cluster Launch Control hands out the others.
  progress.slots = std::min(progress.clusters, std::max(1u, current_options.sms / config.cluster));
  progress.started = config.cooperative ? progress.slots : 0;  // all of them at once
  forget_idle();
  forget_spins();
  progress.order.clear();
  if (checking()) {
    uint64_t state = current_options.seed ^ current.number;
    const bool all = translated && !deciding;
    progress.order.resize(progress.clusters);
    std::iota(progress.order.begin(), progress.order.end(), 0u);
    if (all) draw_order_of_all(state);
    // Which of the resident CTAs comes first is nobody's promise.
    for (uint32_t i = all ? 0 : progress.slots; i > 1; --i) {
      auto other = static_cast<uint32_t>(split_mix(state) % i);
      if (deciding) {
        const Decision which{
            .launch = static_cast<uint32_t>(current.number), .who = kClusterOrder, .number = i - 1};
        other = decide(which, other, i - 1, i);
      }
      std::swap(progress.order[i - 1], progress.order[other]);
    }
    progress.any_below = !translated;
    if (!all && progress.clusters > progress.slots) draw_order_of_later(current, state);
    current.together = !config.cooperative && progress.slots > 1 && draw_together(current, state);
  }
  progress.next = progress.slots;
  progress.asking = 0;
  if (config.cooperative && progress.clusters > progress.slots) {
    throw rt::Error("launch: a cooperative grid of " + std::to_string(progress.clusters) +
                    " clusters does not fit on " + std::to_string(current_options.sms) + " SMs");
  }
  const auto began = std::chrono::steady_clock::now();
  uint32_t workers = current_options.os_threads;
  if (workers == 0) workers = std::max(1u, std::thread::hardware_concurrency());
  // Threads of a cooperative grid wait for each other: one OS thread interleaves them all, so that
  // a schedule is a schedule of the whole grid.
  workers = config.cooperative || timing ? 1 : std::min(workers, progress.clusters);
  current.os_threads = workers;
  timed(Op::kLaunch, nullptr, config.grid.x * config.grid.y * config.grid.z,
        config.threads | uint64_t{config.cluster} << 16, config.shared_bytes, config.dependent);
  const Watchdog watchdog(current);
  std::vector<std::thread> others;
  for (uint32_t i = 1; i < workers; ++i) others.emplace_back([&current] { run_clusters(current); });
  run_clusters(current);
  for (std::thread& other : others) other.join();
  seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  settle_counters();
  grid_completed(current, config.stream);
  operation_launched(current);
  for (const auto& each : current.beside) operation_launched(*each);
  end_launch_findings();
  const std::string error = launch_error();
  if (!error.empty()) throw rt::Error(error);
}

}  // namespace

void launch(const rt::LaunchConfig& config, std::function<void()> body) {
  Launch current;
  take_form(current, config, nullptr);
  current.body = std::move(body);
  launch(current, config, {});
}

void launch(const TranslatedGrid& grid, const std::vector<TranslatedGrid>& beside) {
  Launch current;
  take_form(current, grid);
  launch(current, grid.config, beside);
}

int sm_count() {
  return static_cast<int>(current_options.sms);
}

// Runtime: cudaOccupancyMaxActiveBlocksPerMultiprocessor.
// By threads and shared memory, as sm_90 and sm_100 have them; registers are not modelled.
int ctas_per_sm(uint32_t threads, uint32_t shared_bytes) {
  const uint32_t by_threads = 2048 / std::max(threads, 1u);
  const uint32_t by_shared = 233472 / (shared_bytes + 1024);
  return static_cast<int>(std::min({by_threads, by_shared, 32u}));
}

// Runtime: cudaMalloc.
void* device_malloc(size_t bytes) {
  void* pointer = allocate_device(bytes);
  if (pointer == nullptr) throw rt::Error("device_malloc: out of memory");
  // Fresh memory holds anything; this pattern is NaN in every float format.
  std::memset(pointer, 0xff, bytes);
  return pointer;
}

void device_free(void* pointer) {
  if (pointer == nullptr) return;
  finish_queue();
  free_device(pointer);
}

// Runtime: cudaHostAlloc.
void* pinned_malloc(size_t bytes) {
  void* pointer = std::aligned_alloc(256, (std::max<size_t>(bytes, 1) + 255) / 256 * 256);
  if (pointer == nullptr) throw rt::Error("pinned_malloc: out of memory");
  std::memset(pointer, 0xff, bytes);
  note_pinned(pointer, bytes);
  return pointer;
}

// Frees wait for the device, as cudaFree and cudaFreeHost do.
void pinned_free(void* pointer) {
  finish_queue();
  forget_pinned(pointer);
  std::free(pointer);
}

void unregister_foreign_regions();

}  // namespace kb::emu

// What the loader calls; see kernelbench/emulator.py.
#define KB_EMU_EXPORT extern "C" __attribute__((visibility("default")))

KB_EMU_EXPORT void kb_emu_configure(const kb::emu::Options* options) {
  kb::emu::current_options = *options;
  kb::emu::clear_findings();
  kb::emu::forget_decisions();
  kb::emu::forget_trace();
  kb::emu::forget_sync_words();
  kb::emu::forget_timing();
  kb::emu::stream_operation();
  kb::emu::host_waited();
  kb::emu::begin_call();
  kb::emu::configured_at = kb::emu::last_serial;
  kb::emu::launches = 0;
  kb::emu::switch_count = 0;
  kb::emu::seconds = 0;
}

KB_EMU_EXPORT void kb_emu_register(const void* pointer, uint64_t bytes, const char* name,
                                   int writable, int fresh) {
  kb::emu::register_region(pointer, bytes, name, writable != 0, fresh != 0);
}

KB_EMU_EXPORT int kb_emu_wrote(const void* pointer) {
  const auto* const region = kb::emu::region_at(static_cast<const std::byte*>(pointer));
  return region != nullptr && region->words != nullptr &&
         region->words->written_in > kb::emu::configured_at;
}

KB_EMU_EXPORT void kb_emu_unregister_all() {
  kb::emu::unregister_foreign_regions();
}

KB_EMU_EXPORT const char* kb_emu_report() {
  return kb::emu::findings_json(kb::emu::launches, kb::emu::switch_count, kb::emu::seconds);
}
