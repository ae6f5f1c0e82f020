// Signals that a kernel's code raises, as findings that end the launch: an address that no buffer
// owns, a stack that overflows, a division by zero. On a GPU a fault ends the context.
#include <signal.h>
#include <ucontext.h>

#include <iterator>
#include <mutex>

#include "runner.hpp"
#include "watchdog.hpp"

namespace kb::emu {

namespace {

// What the signal handler leaves behind.
struct Fault {
  int signal = 0;
  const void* address = nullptr;
  Pc pc = nullptr;
};
thread_local Fault last_fault;

constexpr int kCaught[] = {SIGSEGV, SIGBUS, SIGFPE};
struct sigaction previous_action[std::size(kCaught)];
// Who knows of faults that are no kernel's, as of a program's host code; may be null.
int (*host_fault)(const void* address, void* context) = nullptr;

// Of the instruction, as if it were a return address.
Pc interrupted(const void* context) {
#if defined(__x86_64__)
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  return reinterpret_cast<Pc>(registers[REG_RIP] + 1);
#elif defined(__aarch64__)
  return reinterpret_cast<Pc>(static_cast<const ucontext_t*>(context)->uc_mcontext.pc + 1);
#else
  return context == nullptr ? context : nullptr;
#endif
}

// On the signal's own stack: leaves the fiber for the scheduler, which never resumes it.
void on_fault(int signal, siginfo_t* info, void* context) {
  Runner* runner = current_runner;
  if (runner == nullptr || current_thread == nullptr) {
    if (host_fault != nullptr && host_fault(info->si_addr, context) != 0) return;
    // Not the kernel's: whoever was there before.
    for (size_t i = 0; i < std::size(kCaught); ++i) {
      if (kCaught[i] == signal) sigaction(signal, &previous_action[i], nullptr);
    }
    return;
  }
  last_fault = {signal, info->si_addr, interrupted(context)};
  runner->faulted();
}

// Elsewhere than in the kernel's code somebody may hold a lock: another signal follows.
void on_overdue(int signal, siginfo_t*, void* context) {
  const Pc pc = interrupted(context);
  if (current_runner == nullptr || current_thread == nullptr || !in_overdue_code(pc)) return;
  last_fault = {signal, nullptr, pc};
  current_runner->faulted();
}

}  // namespace

// Once for the process; what was installed before gets signals that are not a kernel's.
void install_fault_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < std::size(kCaught); ++i) {
      sigaction(kCaught[i], &action, &previous_action[i]);
    }
    action.sa_sigaction = on_overdue;
    action.sa_flags |= SA_RESTART;
    sigaction(kOverdueSignal, &action, nullptr);
  });
}

// Where the address lies says what it means.
void report_fault(const Runner& runner, std::deque<Cluster>& clusters) {
  if (last_fault.signal == kOverdueSignal) return report_hang(clusters, last_fault.pc);
  const void* at = last_fault.address;
  Finding finding{.kind = Class::kCrash, .pc = last_fault.pc, .text = {}};
  if (last_fault.signal == SIGFPE) {
    finding.text = "an integer division by zero";
  } else if (device_block(at)) {
    finding.kind = Class::kOutOfBounds;
    finding.text = "an access beyond the end of device memory";
  } else if (runner.owns_stack_guard(at)) {
    finding.text = "stack overflow: the kernel recurses without end, or its locals are too large";
  } else if (runner.owns_shared_guard(at)) {
    finding.kind = Class::kOutOfBounds;
    finding.text = "an access beyond the end of shared memory";
  } else {
    finding.text = "an access to memory that does not exist";
  }
  end_launch(std::move(finding));
}

}  // namespace kb::emu

// Of a program: its runtime is asked about faults of the host's code, and says whether the access
// may be made again.
extern "C" __attribute__((visibility("default"))) void kb_emu_on_host_fault(
    int (*on_fault)(const void* address, void* context)) {
  kb::emu::install_fault_handler();
  kb::emu::host_fault = on_fault;
}
