// What the host does to memory that pending work may access: pinned and managed memory is protected
// while such work is pending, page by page, so that an access of the host traps. The emulator keeps
// it (operations.cpp there), and finds the conflict when the work is done. Then the instruction is
// executed alone, and the page is protected again.
//
// CUDA programming guide, "Page-Locked Host Memory" and "Unified Memory": the host must synchronize
// before it accesses what the GPU may access at that time.
// Not modelled: what a system call reads or writes there (it fails with EFAULT), and other
// processors than x86-64.
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "order.hpp"

namespace kb::cuda {

namespace {

struct Pages {
  char* begin;
  char* end;
  bool reads;  // the host may read them: what is pending reads, too

  bool operator==(const Pages&) const = default;
};
std::vector<Pages> watched;
std::vector<Pages> last_watched;  // that others may trap in still
bool protecting = false;
// Of the program's library: findings name lines there, also where libc does the access.
const void* program_base = nullptr;
// Threads of the host trap side by side.
std::recursive_mutex watching;
// The page that one instruction may access.
thread_local char* open_page = nullptr;
size_t traps = 0;
// The instruction, and what it accessed.
thread_local std::pair<const void*, const void*> last_trapped;
thread_local size_t trapped_there = 0;
thread_local std::pair<const void*, const void*> tried_again;
std::map<const void*, const void*> last_looks;  // what each instruction accessed last
std::set<const void*> polling;                  // those that have looked at what was polled

// Beyond, the host goes on untrapped until something is done: who looks at all of a large buffer
// has been seen by then.
constexpr size_t kMostTraps = 20000;
// Accesses of one word by one instruction: a loop that polls, which ends when what is pending is
// done. Of that the host knows no more than the word tells.
constexpr size_t kPolls = 1000;

// So long the host may poll a word while nothing is pending: a thread of its own may write it.
constexpr double kPatienceMs = 5000;
thread_local double polls_since_ms = 0;

struct Freed {
  char* begin;
  size_t bytes;
  std::string name;
};
std::vector<Freed> freed;
constexpr size_t kMostFreedBytes = size_t{64} << 20;

Freed* freed_at(const char* at) {
  const auto found = std::find_if(freed.begin(), freed.end(), [at](const Freed& each) {
    return at >= each.begin && at < each.begin + each.bytes;
  });
  return found != freed.end() ? &*found : nullptr;
}

size_t page_bytes() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

char* page_of(const void* address) {
  return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(address) & ~(page_bytes() - 1));
}

#if defined(__x86_64__)

constexpr long long kTrapFlag = 0x100, kWriting = 2;

const Pages* pages_of(const char* address, const std::vector<Pages>& among = watched) {
  const auto found = std::find_if(among.rbegin(), among.rend(), [address](const Pages& each) {
    return address >= each.begin && address < each.end;
  });
  return found != among.rend() ? &*found : nullptr;
}

bool is_in_program(const void* pc) {
  Dl_info info;
  return dladdr(pc, &info) != 0 && info.dli_fbase == program_base;
}

// Behind the instruction, or behind the call in the program that led to one elsewhere.
const void* in_program(const void* pc) {
  Dl_info info;
  const auto* const behind = static_cast<const char*>(pc) + 1;
  if (dladdr(pc, &info) == 0 || info.dli_fbase == program_base) return behind;
  void* frames[32];
  const int count = backtrace(frames, 32);
  for (int at = 0; at < count; ++at) {
    if (is_in_program(frames[at])) return frames[at];
  }
  return behind;
}

// The program's own code, or what it calls of the C and C++ libraries.
bool is_of_program(const void* pc) {
  Dl_info info;
  if (dladdr(pc, &info) == 0) return false;
  const std::string name = info.dli_fname;
  const auto has = [&name](const char* part) { return name.find(part) != std::string::npos; };
  return info.dli_fbase == program_base || has("libc.so") || has("libstdc++") || has("libm.so");
}

// Bytes that an instruction accesses, as far as a copy or a loop of vectors takes more than a word
// (Intel 64 and IA-32 Architectures SDM, volume 2, "Instruction Format"). Functions of libc that
// look for an end read more than is meant, by aligned loads and by comparisons.
size_t bytes_at(const void* pc, bool of_program) {
  const auto* at = static_cast<const uint8_t*>(pc);
  unsigned prefix = 0;  // as VEX numbers 66, F3 and F2
  for (;; ++at) {
    if (*at == 0x66) prefix = 1;
    if (*at == 0xf3) prefix = 2;
    if (*at == 0xf2) prefix = 3;
    if (std::memchr("\x66\xf3\xf2\x2e\x3e\x64\x65\xf0", *at, 8) == nullptr) break;
  }
  const bool wide = (*at & 0xf8) == 0x48;
  if ((*at & 0xf0) == 0x40) ++at;
  size_t vector = 16;
  unsigned code = 0;
  if (*at == 0x0f) {
    code = at[1];
  } else if (*at == 0xc5) {
    prefix = at[1] & 3;
    vector <<= at[1] >> 2 & 1;
    code = at[2];
  } else if (*at == 0xc4 && (at[1] & 0x1f) == 1) {
    prefix = at[2] & 3;
    vector <<= at[2] >> 2 & 1;
    code = at[3];
  } else if (*at == 0x62 && (at[1] & 7) == 1 && (at[3] & 7) == 0) {  // without a mask
    prefix = at[2] & 3;
    vector <<= at[3] >> 5 & 3;
    code = at[4];
  } else {
    return wide ? 8 : 4;
  }
  const bool moves = code == 0x10 || code == 0x11, integers = code == 0x6f || code == 0x7f;
  const bool aligned = code == 0x28 || code == 0x29 || (integers && prefix == 1);
  if ((moves && prefix <= 1) || (integers && prefix >= 2) || (aligned && of_program)) return vector;
  return (moves && prefix == 3) || code == 0xd6 || (code == 0x7e && (prefix == 2 || wide)) ? 8 : 4;
}

void protect(const Pages& pages) {
  mprotect(pages.begin, static_cast<size_t>(pages.end - pages.begin),
           pages.reads ? PROT_READ : PROT_NONE);
}

int on_host_fault(const void* address, void* context) {
  const auto* at = static_cast<const char*>(address);
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  if (Freed* const memory = freed_at(at)) {
    mprotect(memory->begin, memory->bytes, PROT_READ | PROT_WRITE);
    host_found(false, in_program(reinterpret_cast<const void*>(registers[REG_RIP])),
               "the host accesses " + memory->name + ", which it has freed");
    return 1;
  }
  std::unique_lock call(one_call);  // in this order wherever both are locked
  std::unique_lock lock(watching);
  const auto* pc = reinterpret_cast<const void*>(registers[REG_RIP]);
  const std::pair<const void*, const void*> now{pc, at};
  if (!protecting || pages_of(at) == nullptr) {
    // Since it has trapped, another thread may have opened the page: it is tried once more.
    const bool opened = pages_of(at, last_watched) != nullptr && now != tried_again;
    tried_again = now;
    if (opened) return 1;
    lock.unlock();
    if (is_of_program(pc)) {
      one_call.let_go();
      call.release();
      // As a shell says it: what was found counts.
      leave_main(128 + (registers[REG_TRAPNO] == 0 ? SIGFPE : SIGSEGV));
    }
    return 0;
  }
  host_is_there();
  const bool writing = (registers[REG_ERR] & kWriting) != 0;
  tried_again = {};
  trapped_there = now == last_trapped ? trapped_there + 1 : 0;
  last_trapped = now;
  if (trapped_there == 0) polls_since_ms = now_ms();
  if (nothing_to_do()) {
    if (now_ms() - polls_since_ms > kPatienceMs) {
      host_found(true, in_program(pc),
                 "the host polls a word, and nothing is pending that could change it");
      unwatch();
      lock.unlock();
      call.unlock();
      leave_main(1);
    }
  } else if (trapped_there > kPolls) {
    trapped_there = 0;
    for (const auto& [each, looked] : last_looks) {
      if (looked == at) polling.insert(each);
    }
    lock.unlock();
    call.unlock();
    host_polls(host_has_threads());
    do_unseen();  // what the loop waits for
    return 1;
  }
  last_looks[pc] = at;
  if (writing) host_acts();
  if (trapped_there == 0 && ++traps > kMostTraps) {
    unwatch();
    return 1;
  }
  const auto begin = reinterpret_cast<uintptr_t>(at) & ~uintptr_t{3};
  // At the begin of a page it may be the rest of an access.
  const bool whole = at != page_of(at) || at == range_of(at).begin;
  const size_t bytes = whole ? bytes_at(pc, is_in_program(pc)) : 1;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(at) + bytes + 3) & ~uintptr_t{3};
  const bool beside = function_runs_beside();
  if (beside) order_ends();
  host_touched(reinterpret_cast<const char*>(begin), end - begin, writing, in_program(pc),
               polling.count(pc) != 0);
  if (beside) begin_running_again();
  open_page = page_of(at);
  mprotect(open_page, page_bytes(), PROT_READ | PROT_WRITE);
  registers[REG_EFL] |= kTrapFlag;
  return 1;
}

// One instruction later.
void on_step(int, siginfo_t*, void* context) {
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
  char* const page = std::exchange(open_page, nullptr);
  const std::lock_guard lock(watching);
  const Pages* const pages = page != nullptr && protecting ? pages_of(page) : nullptr;
  if (pages != nullptr) protect({page, page + page_bytes(), pages->reads});
}

void catch_steps() {
  static const bool once = [] {
    struct sigaction action = {};
    action.sa_sigaction = on_step;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaction(SIGTRAP, &action, nullptr);
    catch_faults(on_host_fault);
    return true;
  }();
  static_cast<void>(once);
}

#endif

}  // namespace

void watch_program(const void* function) {
  Dl_info info;
  program_base = dladdr(function, &info) != 0 ? info.dli_fbase : nullptr;
  catch_steps();
  traps = 0;
  last_looks.clear();
  polling.clear();
}

// For a function of the host, which may access whatever the host has.
void watch_all() {
  for (const Range& each : host_ranges()) watch({each.begin, each.bytes, true});
}

// Pages that belong to such memory as a whole; those of an allocation are its own to their end.
void watch(const Reach& reach) {
#if defined(__x86_64__)
  const std::lock_guard lock(watching);
  const Range range = range_of(reach.at);
  const bool hosts = range.type == cudaMemoryTypeHost || range.type == cudaMemoryTypeManaged;
  if (!hosts || range.number == 0 || traps > kMostTraps) return;
  catch_steps();
  const auto* first = static_cast<const char*>(reach.at);
  char* begin = page_of(first);
  char* end = page_of(first + reach.bytes + page_bytes() - 1);
  if (range.registered) {
    if (begin < range.begin) begin += page_bytes();
    if (end > range.begin + range.bytes) end -= page_bytes();
  }
  if (begin >= end) return;
  // What nothing pending writes the host may read.
  const Pages pages{begin, end, !reach.writes};
  if (std::find(watched.begin(), watched.end(), pages) != watched.end()) return;
  watched.push_back(pages);
  protecting = true;
  for (const Pages& each : watched) {
    if (each.reads && each.begin < end && begin < each.end) protect(each);
  }
  for (const Pages& each : watched) {
    if (!each.reads && each.begin < end && begin < each.end) protect(each);
  }
#else
  static_cast<void>(reach);
#endif
}

void trap_freed(char* begin, size_t bytes, const std::string& name) {
#if defined(__x86_64__)
  catch_steps();
  mprotect(begin, bytes, PROT_NONE);
#endif
  freed.push_back({begin, bytes, name});
}

std::vector<char*> kept_no_longer() {
  std::vector<char*> found;
  size_t bytes = 0;
  for (const Freed& each : freed) bytes += each.bytes;
  while (bytes > kMostFreedBytes) {
    mprotect(freed.front().begin, freed.front().bytes, PROT_READ | PROT_WRITE);
    bytes -= freed.front().bytes;
    found.push_back(freed.front().begin);
    freed.erase(freed.begin());
  }
  return found;
}

void unwatch() {
  const std::lock_guard lock(watching);
  for (const Pages& each : watched) {
    mprotect(each.begin, static_cast<size_t>(each.end - each.begin), PROT_READ | PROT_WRITE);
  }
  last_watched = std::move(watched);
  watched.clear();
  protecting = false;
  if (traps <= kMostTraps) traps = 0;
}

}  // namespace kb::cuda
