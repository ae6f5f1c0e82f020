// Runs clusters: fibers, the pending asynchronous operations, the schedule's choices; and what the
// runtime's files offer each other besides core.hpp. Models nothing of PTX by itself.
#pragma once

#include <csetjmp>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "choices.hpp"
#include "core.hpp"
#include "fiber.hpp"
#include "livelock.hpp"

namespace kb::emu {

// Thrown by a task or a check at exit after a finding that ends the launch.
struct Abandon {};

// What one set of resident clusters needs of the operating system; reused from launch to launch.
struct Resources {
  Resources(uint32_t threads, uint32_t ctas);
  ~Resources();
  Resources(const Resources&) = delete;
  Resources& operator=(const Resources&) = delete;
  uint32_t threads;
  uint32_t ctas;
  Stacks stacks;
  std::byte* shared = nullptr;
  std::byte* mapping = nullptr;  // in which shared memory lies
  size_t mapped = 0;
};

// The clusters that one OS thread interleaves: one and those started beside it, or the whole grid
// of a cooperative launch.
class Runner {
 public:
  // `threads`, `ctas`: of a cluster at most.
  Runner(Launch& launch, std::unique_ptr<Resources> resources, uint32_t clusters, uint32_t threads,
         uint32_t ctas);
  // Runs the clusters with these ids to their end, or until the launch is abandoned.
  void run(const std::vector<uint32_t>& ids);
  void give_back_resources();

  void submit(Pc pc, Task task, bool outlives);
  void submit_in_order(Warp& warp, Pipe pipe, Pc pc, Task task);
  bool pipe_idle(const Warp& warp, Pipe pipe) const;
  void yield_to_scheduler();
  void may_run(uint32_t warp) { awake_[warp / 64] |= uint64_t{1} << warp % 64; }
  bool on_fiber() const { return on_fiber_; }
  // Of loops that poll (polls.hpp): one has given way; something has changed that they may see.
  void count_poll();
  void changed();
  // It has, and it was no word of memory.
  void progressed();
  // Of loops that change what others look at (livelock.hpp): a strong access.
  void spun(const void* at, uint32_t bytes, uint64_t value, Pc pc) {
    if (++spins_ > kSpinsUnwatched && !watch_spin(at, bytes, value, pc)) spins_ = 0;
  }
  // Whether each thread waits or has been seen so often.
  bool all_spin(uint32_t times) const;
  // Every warp may run from now on: what goes round does so with all of them.
  void hold_up_none() { held_up_ = ~0u; }
  void each_shared_memory(const std::function<void(std::byte*, uint64_t)>& see) const;
  // From the signal handler: the fault is described and the launch ends.
  [[noreturn]] void faulted();
  bool owns_stack_guard(const void* address) const;
  bool owns_shared_guard(const void* address) const;
  uint64_t switches() const { return switches_; }
  void thread_main();

 private:
  struct Pending {
    Cta* cta;
    bool outlives;
    Pc pc;
    Task task;
  };
  struct InOrder {
    Warp* warp;
    Pipe pipe;
    std::deque<Pending> tasks;
  };
  template <typename Body>
  void outside_threads(const Cta& cta, const Body& body);
  // residents.cpp
  void add_home(std::unique_ptr<Resources> resources);
  void start(uint32_t id);
  bool start_another(int64_t id);
  bool start_waited_for(uint64_t since);
  int64_t highest_polling() const;
  void start_memory(Cta& cta);
  void start_threads(Cta& cta, Fiber* fibers);
  void finish(Cta& cta);
  bool runnable(Thread& thread);
  void resume(Thread& thread);
  bool run_warp(Warp& warp, uint32_t first_lane);
  uint32_t asleep_from(uint32_t warp, uint32_t end) const;
  bool pass_plain();
  bool pass_checked();
  bool run_a_task();
  std::map<Pc, uint32_t> in_flight(const Cta& cta) const;
  uint32_t tasks_available() const;
  void end_idleness();
  void help();
  bool look_again();
  bool host_goes_on();
  bool wait_for_other_clusters(uint32_t running, uint64_t since);
  bool run_a_lane_first(Warp& warp);
  uint32_t choose(uint32_t bound, uint32_t usual);
  uint32_t decided(uint32_t drawn, uint32_t usual, uint32_t bound);
  bool one_in(uint32_t n);
  Decision scheduler_decision(uint32_t number) const;
  uint32_t random(uint32_t bound);
  uint32_t random_awake();

  struct Home {
    std::unique_ptr<Resources> resources;
    std::vector<Fiber> fibers;
  };
  Launch& launch_;
  std::deque<Home> homes_;  // the first is of the first `roomy_` clusters, others of one each
  size_t roomy_;
  const uint32_t threads_, ctas_;  // of a cluster at most
  std::deque<Cluster> clusters_;
  size_t started_ = 0;  // of the clusters, since `run` began
  std::vector<Warp*> warps_;
  std::vector<uint64_t> awake_;  // a bit for each of them: cleared when all its lanes are asleep
  uint32_t live_ = 0;
  std::vector<Pending> unordered_;
  std::deque<InOrder> in_order_;
  uint32_t in_order_pending_ = 0;
  enum class Style { kMixed, kLate, kEager } style_ = Style::kMixed;
  uint64_t random_state_ = 0;
  bool evenly_ = false;
  uint32_t held_up_ = ~0u;
  bool owes_help_ = false;
  bool looks_again_ = false;  // threads that poll are run though they would see the same
  uint32_t polls_unhelped_ = 0;
  uint32_t quiet_rounds_ = 0;  // since something changed, in which nobody else could run
  uint32_t passes_ = 0;
  uint32_t spins_ = 0;      // strong accesses since something else has happened
  uint32_t last_ = 0;       // the warp that ran last
  uint32_t decisions_ = 0;  // of this scheduler, since it began with these clusters
  void* scheduler_ = nullptr;
  uint64_t switches_ = 0;
  bool on_fiber_ = false;
  bool idle_ = false;  // nothing could run in the last pass
  // This OS thread's current_thread: looking it up costs a call in a shared library.
  Thread** current_ = nullptr;
  sigjmp_buf recovery_;
};

extern thread_local Thread* current_thread;
extern thread_local Runner* current_runner;
// The CTA whose task runs while no thread does.
extern thread_local const Cta* current_task_cta;

// Whether the launch in progress has met a finding that ends it.
bool abandoned();
// Records a finding that ends the launch, without leaving the caller.
void end_launch(Finding finding);
uint64_t split_mix(uint64_t& state);
// A thread of translated PTX has exited: warps and barriers go on without it (warp.cpp,
// cta_barriers.cpp).
void excuse_from_collectives(const Thread& thread);
void excuse_from_barriers(const Thread& thread);

// findings.cpp
void begin_launch_findings();
void end_launch_findings();
// One line if the launch must end with an error, else empty.
std::string launch_error();
// How many findings there are, repeats included.
uint64_t findings_count();

// hang.cpp
// Describes every thread that waits, as a finding that ends the launch: nothing can run, or the
// launch is overdue. `running`: where some thread still does; may be null.
void report_hang(std::deque<Cluster>& clusters, Pc running = nullptr);

// faults.cpp
// Sent to code of a kernel that is overdue; by default it does nothing.
inline constexpr int kOverdueSignal = SIGURG;
// Makes a signal of the kernel's code end its launch, by Runner::faulted.
void install_fault_handler();
// Turns the last such signal of this OS thread into a finding.
void report_fault(const Runner& runner, std::deque<Cluster>& clusters);

// barriers.cpp
void check_barriers_at_exit(Cta& cta);
void check_accesses_afar(const Cta& cta);
void check_wgmma_at_exit(Cta& cta);

// launch.cpp
uint64_t launches_begun();
uint64_t launch_serial();  // of the last launch
// For an access of a program that is no launch's.
uint64_t new_serial();

// regions.cpp
void register_region(const void* pointer, size_t bytes, const char* name, bool writable,
                     bool fresh);
// Device memory from pages of its own, with one behind it that faults.
void* allocate_device(size_t bytes);
void free_device(void* pointer);
// Whether an address lies in such pages, guard included.
bool device_block(const void* address);

}  // namespace kb::emu
