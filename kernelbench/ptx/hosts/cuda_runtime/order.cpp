#include "order.hpp"

#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

namespace kb::cuda {

namespace {

struct Emulator {
  void (*program)(int) = found<void (*)(int)>("kb_emu_program");
  void (*operation)(uint64_t, uint32_t, int, const char*, const char*, const void*, uint64_t,
                    const uint64_t*, uint64_t,
                    uint32_t) = found<decltype(operation)>("kb_emu_operation");
  void (*launched_by)(uint64_t, uint32_t, uint64_t,
                      const void*) = found<decltype(launched_by)>("kb_emu_launched_by");
  void (*within)(uint64_t, const uint64_t*,
                 uint64_t) = found<decltype(within)>("kb_emu_operations_within");
  uint64_t (*device_launches)(const void**) =
      found<decltype(device_launches)>("kb_emu_device_launches");
  void (*after)(uint64_t, uint64_t) = found<decltype(after)>("kb_emu_operation_after");
  void (*begin)(uint64_t) = found<decltype(begin)>("kb_emu_begin_operation");
  void (*end)() = found<decltype(end)>("kb_emu_end_operation");
  void (*touched)(const void*, uint64_t, const char*, const void*, uint64_t,
                  int) = found<decltype(touched)>("kb_emu_touched");
  void (*host_touched)(const void*, uint64_t, const char*, const void*, uint64_t, int, const void*,
                       int) = found<decltype(host_touched)>("kb_emu_host_touched");
  void (*host_polls)(int) = found<decltype(host_polls)>("kb_emu_host_polls");
  void (*host_found)(int, const void*,
                     const char*) = found<decltype(host_found)>("kb_emu_host_found");
  void (*note)(const void*, const char*) = found<decltype(note)>("kb_emu_note");
  void (*acquires)(const void*) = found<decltype(acquires)>("kb_emu_operation_acquires");
  void (*at_word)(const void*) = found<decltype(at_word)>("kb_emu_operation_at_word");
  void (*fresh)(const void*) = found<decltype(fresh)>("kb_emu_fresh");
  void (*on_host_fault)(int (*)(const void*,
                                void*)) = found<decltype(on_host_fault)>("kb_emu_on_host_fault");
  void (*on_host_turn)(int (*)()) = found<decltype(on_host_turn)>("kb_emu_on_host_turn");
  void (*host_knows)(uint64_t) = found<decltype(host_knows)>("kb_emu_host_knows");
  void (*all_done)() = found<decltype(all_done)>("kb_emu_all_done");
  void (*freed)(const void*, uint64_t, const char*) = found<decltype(freed)>("kb_emu_freed");
  void (*out_of_reach)(const void*, uint64_t,
                       const char*) = found<decltype(out_of_reach)>("kb_emu_out_of_reach");

  template <typename Function>
  static Function found(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  }
};

const Emulator& emulator() {
  static const Emulator only;
  return only;
}

// Whether a program runs whose kernels are checked.
bool ordering = false;

// As findings have it.
std::string name_of(const Range& range) {
  return range.number != 0 ? "allocation " + std::to_string(range.number) : range.variable;
}

thread_local int depth = 0;
thread_local const char* call_name = "";
thread_local const void* call_pc = nullptr;
thread_local const void* launch_pc = nullptr;
thread_local bool in_host_function = false;
// Some thread's; who knows holds one_call.
bool function_runs = false;

// It may wait for another thread, whose calls go on meanwhile, and may tell it what is done.
void call_function(const std::function<void()>& call) {
  if (is_gpu_thread() || host_has_threads()) host_knows(running_now());
  function_runs = in_host_function = true;
  const size_t held = one_call.let_go();
  call();
  one_call.take(held);
  function_runs = in_host_function = false;
}

}  // namespace

Call::Call(const char* name, const void* pc) {
  if (depth++ > 0) return;
  call_name = name;
  call_pc = pc;
}

const void* call_site() {
  return depth > 0 ? call_pc : nullptr;
}

Asked call_made() {
  if (depth == 0) return {};
  return {call_name, launch_pc != nullptr ? launch_pc : call_pc};
}

Call::~Call() {
  --depth;
}

void launched_from(const void* pc) {
  launch_pc = pc;
}

Asked asked_now(const std::string& kernel) {
  const void* const pc = !kernel.empty() && launch_pc != nullptr ? launch_pc : call_pc;
  launch_pc = nullptr;
  return {kernel.empty() ? call_name : kernel, pc};
}

void order_operation(Task task, uint32_t line, int gpu, Kind kind, const Asked& asked,
                     const std::string& stream, Task ahead, const std::vector<Task>& after) {
  if (!ordering) return;
  emulator().operation(task, line, static_cast<int>(kind), asked.name.c_str(), stream.c_str(),
                       asked.pc, ahead, after.data(), after.size(), static_cast<uint32_t>(gpu));
}
void order_launch(Task task, uint32_t line, Task kernel, const void* word) {
  if (ordering) emulator().launched_by(task, line, kernel, word);
}
void order_within(Task task, const std::vector<Task>& within) {
  if (ordering) emulator().within(task, within.data(), within.size());
}
size_t device_launches(const void** first) {
  return emulator().device_launches(first);
}
void order_after(Task task, Task earlier) {
  if (emulator().after != nullptr) emulator().after(task, earlier);
}

void order_acquires(const void* word) {
  if (ordering) emulator().acquires(word);
}

void order_at_word(const void* written) {
  if (ordering) emulator().at_word(written);
}

void order_begins(Task task) {
  if (ordering) emulator().begin(task);
}
void order_ends() {
  if (ordering) emulator().end();
}
void host_knows(Task task) {
  if (ordering) emulator().host_knows(task);
}
void all_done() {
  if (ordering) emulator().all_done();
}

void touched(const void* at, size_t bytes, bool writing) {
  if (!ordering) return;
  const Range range = range_of(at);
  if (range.begin == nullptr) return;
  emulator().touched(range.begin, range.bytes, name_of(range).c_str(), at, bytes, writing);
}

void host_touched(const void* at, size_t bytes, bool writing, const void* pc, bool looks) {
  const Range range = range_of(at);
  if (range.begin == nullptr) return;
  emulator().host_touched(range.begin, range.bytes, name_of(range).c_str(), at, bytes, writing, pc,
                          looks);
}

void host_found(bool hangs, const void* pc, const std::string& text) {
  emulator().host_found(hangs, pc, text.c_str());
}
void host_polls(bool side_by_side) {
  emulator().host_polls(side_by_side ? 1 : 0);
}

void note_race(const void* pc, const std::string& text) {
  if (ordering) emulator().note(pc, text.c_str());
}

namespace {

// The first bytes of what a function is given, which may be no pointer.
template <size_t kBytes>
std::array<char, kBytes> bytes_at(const void* data) {
  std::array<char, kBytes> bytes{};
  const iovec to{bytes.data(), bytes.size()}, from{const_cast<void*>(data), bytes.size()};
  if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) < 0) bytes = {};
  return bytes;
}

}  // namespace

bool function_runs_beside() {
  return function_runs && !in_host_function;
}

void wait_for_function() {
  while (function_runs_beside()) {
    const size_t held = one_call.let_go();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    one_call.take(held);
  }
}

bool refused_in_host_function() {
  if (in_host_function) launch_refused("a function of the host", cudaErrorNotPermitted);
  return in_host_function;
}

namespace {

// What is given to functions that were not called yet: how often, and more of its bytes, for one
// that is given again.
struct Given {
  size_t times = 0;
  std::array<char, 32> bytes{};
};
std::map<const void*, Given> given_now;

// Whether it has changed since it was given to another such function.
bool given_otherwise(const void* data) {
  Given& of = given_now[data];
  const auto before = std::exchange(of.bytes, bytes_at<32>(data));
  return of.times++ != 0 && before != of.bytes;
}

void given_no_longer(const void* data) {
  const auto found = given_now.find(data);
  if (found != given_now.end() && --found->second.times == 0) given_now.erase(found);
}

}  // namespace

// CUDA runtime API, cudaLaunchHostFunc: its argument is the caller's, until the call is over.
Work host_function(const std::function<void()>& call, const void* data) {
  return [call, data, name = std::string(call_name), pc = call_site(), kept = bytes_at<8>(data),
          changed = given_otherwise(data)] {
    given_no_longer(data);
    constexpr const char* kUnordered = ": nothing has made the host wait";
    if (main_has_ended) {
      note_race(pc, "what " + name + " calls was not called before main ended" + kUnordered);
      return cudaSuccess;
    }
    if (changed || kept != bytes_at<8>(data)) {
      note_race(pc,
                "what " + name + " gives its function was changed before the call" + kUnordered);
    }
    if (ordering) watch_all();
    call_function(call);
    if (ordering) unwatch();
    return cudaSuccess;
  };
}

void catch_faults(int (*on_fault)(const void* address, void* context)) {
  emulator().on_host_fault(on_fault);
}

void ask_for_turns(int (*turn)()) {
  emulator().on_host_turn(turn);
}

bool orders() {
  return ordering;
}

void memory_made(const void* begin) {
  if (ordering) emulator().fresh(begin);
}

void out_of_reach(const void* begin, size_t bytes, const std::string& text) {
  emulator().out_of_reach(begin, bytes, text.c_str());
}

void memory_freed(const void* begin, size_t bytes, uint64_t number) {
  if (ordering) emulator().freed(begin, bytes, ("allocation " + std::to_string(number)).c_str());
}

}  // namespace kb::cuda

// For the loader: a program begins whose operations are put into order, or has ended.
extern "C" void kb_cudart_program(int begins) {
  kb::cuda::ordering = begins != 0;
  kb::cuda::emulator().program(begins);
}
