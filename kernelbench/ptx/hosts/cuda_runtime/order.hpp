// What the emulator is told of the order of a program's operations, and of what those that are no
// launches access (operations.cpp there). It is loaded before this library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "state.hpp"

namespace kb::cuda {

// The call of the program that asks for an operation: the outermost, if the runtime calls itself.
class Call {
 public:
  Call(const char* name, const void* pc);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  const std::lock_guard<OneCall> locked_{one_call};
};
#define KB_CALL \
  const Call call(__func__, __builtin_extract_return_addr(__builtin_return_address(0)))

// Where the program has made the call that goes on; null if none does.
const void* call_site();

// Of that call, if there is one: its name, and where it, or the `<<<>>>` that led to it, stands.
Asked call_made();

// Where `<<<>>>` stands, for the launch that follows.
void launched_from(const void* pc);

// Whether a program runs whose operations are put into order.
bool orders();
// An operation is asked for. `ahead`: the launch whose end it need not wait for; 0 for none.
void order_operation(Task task, uint32_t line, int gpu, Kind kind, const Asked& asked,
                     const std::string& stream, Task ahead, const std::vector<Task>& after);
// What follows on the line comes after what a thread of a kernel that is over knew when it launched
// that, by the launch's word.
void order_launch(Task task, uint32_t line, Task kernel, const void* word);
// Those operations were made by one that is over: it is complete only when they are.
void order_within(Task task, const std::vector<Task>& within);
// What is done now comes after another operation, which is over: it has waited for it.
void order_after(Task task, Task earlier);
// What is done now is about to write a word that others may poll; or it has, behind a fence.
void order_at_word(const void* written);
// What is done now comes after what launches have released by the word.
void order_acquires(const void* word);
// What the last launch has launched, as the emulator keeps it.
size_t device_launches(const void** first);
void order_begins(Task task);
void order_ends();
void host_knows(Task task);
void all_done();
// An access of the host to such memory, while something pending may access it, too; or of the
// host's function that is called now. `looks`: by an instruction that polls.
void host_touched(const void* at, size_t bytes, bool writing, const void* pc, bool looks);
// The host polls: what is pending will be done for it.
// `side_by_side`: and others of its threads do.
void host_polls(bool side_by_side);
// The host polls a word for ever, or accesses memory that is freed.
void host_found(bool hangs, const void* pc, const std::string& text);
// Such pages trap from now on: memory of the host that the program has freed.
void trap_freed(char* begin, size_t bytes, const std::string& name);
// Those whose pages no longer need be kept: at most so many bytes are.
std::vector<char*> kept_no_longer();
// What may explain that main fails: a race of the host with what was asked for there.
void note_race(const void* pc, const std::string& text);
// Who is asked about faults that are no kernel's: whether the access may be made again.
void catch_faults(int (*on_fault)(const void* address, void* context));

// Calls a function of the host, whose accesses are those of the operation that is done now; unless
// main has ended: then what it is given may be gone.
Work host_function(const std::function<void()>& call, const void* data);
// Whether another thread is in one: what is not enqueued, but done, waits for its end.
bool function_runs_beside();
void wait_for_function();
const What kHostFunction{Kind::kTransfer, {}, false, {}, true};

// Who is asked, in a launch that cannot go on, whether the host can.
void ask_for_turns(int (*turn)());

// turns.cpp
// What is pending goes on, by `work` or from where a kernel waits for the host: to its end, or to
// where it waits for the host, unless that is blocked by a call.
void gpu_goes_on(const std::function<void()>& work, bool blocks);
bool kernel_waits_for_host();
// Beside the one that calls main.
bool host_has_threads();
// A launch that cannot go on has one operation done that is no launch and nothing orders behind it;
// from now on such launches ask for it.
bool does_one_in_turn();
void streams_answer();
bool is_gpu_thread();
// From now on functions of the host are called once the host has made no call for long.
void watch_for_silence();
// The host has several threads: those that do not wait here go on ahead of the call that begins, as
// far as they come in a short while.
void let_others_go_on();
// The host makes a call, or an access that traps.
void host_is_there();
// The host does what a kernel may wait for.
void host_acts();

// queue.cpp
// In the middle of what is done now, the host goes on; and no longer.
void watch_pending();
void begin_running_again();
Task running_now();
// The first function of the host that is pending is called: the host waits for it.
void call_first_function();

// host_access.cpp
// A program begins whose code has that function.
void watch_program(const void* function);
// Accesses of the host to what is reached trap from now on; and no access does.
void watch(const Reach& reach);
void watch_all();
void unwatch();

// The current operation accesses memory that the GPU reaches; nothing for other memory.
void touched(const void* at, size_t bytes, bool writing);
void memory_made(const void* begin);
void memory_freed(const void* begin, size_t bytes, uint64_t number);
// Memory that kernels cannot access now, as findings say it; null: of which there is none.
void out_of_reach(const void* begin, size_t bytes, const std::string& text);
void tell_out_of_reach();

}  // namespace kb::cuda
