// Happens-before for a whole program: a vector clock with a component for each stream and one for
// the host. An operation comes after what is ahead of it in its stream, what its stream waits for,
// and what the host has waited for before it asked for it (CUDA programming guide, "Asynchronous
// Concurrent Execution"; CUDA runtime API, "API synchronization behavior"). Which those are the
// program's runtime says (kernelbench/ptx/hosts/cuda_runtime/queue.cpp); what they access is kept
// in the shadow of global memory, for as long as the allocation lives.
//
// Programmatic dependent launch (CUDA programming guide, "Programmatic Dependent Launch and
// Synchronization"): the secondary kernel may begin without waiting for "the completion and memory
// flush" of the primary, at the latest trigger of its blocks or when they have all exited; only
// cudaGridDependencySynchronize (griddepcontrol.wait, PTX ISA 9.1, 9.7.13) makes the primary's
// writes visible. It says nothing of what is ahead of the primary, unless the primary has waited.
#include "operations.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

#include "api_core.hpp"
#include "assumptions.hpp"
#include "collected.hpp"
#include "global_shadow.hpp"
#include "regions.hpp"
#include "runner.hpp"

namespace kb::emu {

namespace {

bool is_program = false;
// By the number that the program's runtime gives them.
std::unordered_map<uint64_t, std::unique_ptr<StreamOperation>> operations;
std::vector<std::unique_ptr<StreamOperation>> accesses_of_host;
std::vector<uint32_t> lengths;  // of the lines, the host's first
Past host;                      // what the host knows of
StreamOperation* current = nullptr;
// The operation of each serial from the first one on that something may be beside.
std::vector<const StreamOperation*> by_serial;
uint64_t first_serial = 1;
// By where the allocation begins.
std::map<const std::byte*, std::shared_ptr<Words>> shadows;
// Of allocations that are there no longer, whose memory an allocator may give to others.
std::map<uint64_t, std::shared_ptr<Words>> dropped;
uint64_t drops = 0;
// Of the GPU, where the program has asked for memory that holds nothing.
std::set<const std::byte*> fresh;
// By where it began: allocations that the program has freed.
struct FreedMemory {
  const std::byte* end;
  std::string name;
};
std::map<const std::byte*, FreedMemory> freed;
// Memory that the GPU of the kernel that runs cannot access, with what is said of it.
std::map<const std::byte*, FreedMemory> out_of_reach;
uint32_t asked_for = 0;  // operations, since everything was done
// Of a call and a later operation: how many had been asked for before the last such call ahead.
std::map<std::pair<Pc, const StreamOperation*>, uint32_t> nearest;
std::mutex nearest_guard;                     // a launch's CTAs may be on several OS threads
bool host_polls = false;                      // since then
std::set<const StreamOperation*> flags_seen;  // whose strong stores the host has polled
bool several_poll = false;                    // threads of the host, side by side
// What was found where no launch was.
Collected outside_launches;
std::string report_text;

StreamOperation* found(uint64_t number) {
  const auto at = operations.find(number);
  return at != operations.end() ? at->second.get() : nullptr;
}

uint32_t next_on(uint32_t line) {
  if (lengths.size() <= line) lengths.resize(line + 1);
  return ++lengths[line];
}

// `fill` for a kernel's mangled name; other names as they are.
std::string plain(const char* name) {
  int status = -1;
  char* const made = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  if (status != 0 || made == nullptr) return name;
  std::string text = made;
  std::free(made);
  const std::string anonymous = "(anonymous namespace)::";
  for (size_t at; (at = text.find(anonymous)) != std::string::npos;) {
    text.erase(at, anonymous.size());
  }
  text.resize(std::min(text.size(), text.find('(')));
  return text.rfind("void ", 0) == 0 ? text.substr(5) : text;
}

// What the operation ahead leaves behind depends on what it did.
void settle(StreamOperation& operation) {
  const StreamOperation* ahead = operation.ahead;
  operation.before = operation.outside;
  operation.waited = operation.outside;
  if (ahead == nullptr) return;
  const Past& completed = ahead->waits ? ahead->waited : ahead->before;
  operation.before.join(ahead->triggers ? ahead->before : completed);
  operation.handed = operation.before;
  if (ahead->triggers_after_wait) operation.handed.join(ahead->waited);
  operation.waited.join(completed);
  operation.waited.also.push_back(ahead);
}

// Whether it is one of the launches ahead whose end a dependent one need not wait for.
bool is_ahead(const StreamOperation& operation, const StreamOperation& other) {
  const StreamOperation* each = operation.ahead;
  while (each != nullptr && each != &other) each = each->ahead;
  return each != nullptr;
}

// The launch between the two that has not waited for the one ahead of it.
std::string between(const StreamOperation& operation, const StreamOperation& earlier) {
  const StreamOperation* each = operation.ahead;
  while (each != nullptr && each != &earlier && each->waits) each = each->ahead;
  return each != nullptr && each != &earlier ? each->name + ", a launch between them,"
                                             : "a launch between them";
}

void report_outside(Finding finding) {
  keep_once(outside_launches.findings, std::move(finding));
}

}  // namespace

bool Past::covers(const StreamOperation& operation) const {
  if (operation.line < until.size() && operation.number <= until[operation.line]) return true;
  return std::find(also.begin(), also.end(), &operation) != also.end();
}

void Past::join(const Past& other) {
  if (until.size() < other.until.size()) until.resize(other.until.size());
  for (size_t line = 0; line < other.until.size(); ++line) {
    until[line] = std::max(until[line], other.until[line]);
  }
  for (const StreamOperation* each : other.also) {
    if (!covers(*each)) also.push_back(each);
  }
}

void Past::add(const StreamOperation& operation) {
  if (until.size() <= operation.line) until.resize(operation.line + 1);
  until[operation.line] = std::max(until[operation.line], operation.number);
}

StreamOperation* current_operation() {
  return current_thread != nullptr ? current_thread->cta->cluster->launch->operation : current;
}

const StreamOperation* operation_of(uint64_t serial) {
  return serial < first_serial || serial - first_serial >= by_serial.size()
             ? nullptr
             : by_serial[serial - first_serial];
}

void note_serial(uint64_t serial, const StreamOperation* operation) {
  if (!is_program) return;
  by_serial.resize(serial - first_serial + 1);
  by_serial.back() = operation;
}

// A read before the trigger of its CTA is over when a dependent begins.
bool behind(const StreamOperation& operation, const Access& earlier, bool wrote, bool waited) {
  const StreamOperation* other = operation_of(earlier.serial);
  if (other == nullptr || other == &operation) return true;
  if ((waited ? operation.waited : operation.before).covers(*other)) return true;
  if (waited || !is_ahead(operation, *other)) return false;
  if (!wrote && !earlier.triggered) return true;
  if (!operation.handed.covers(*other)) return false;
  assume(Assumption::kTriggersHandOn);
  return true;
}

namespace {

// Why a flag does not order them.
const char* flag_text(Handed handed, bool by_host) {
  switch (handed) {
    case Handed::kUnfenced:
      return by_host ? "; the flag is not acquired at the scope of the system"
                     : "; no fence follows the flag";
    case Handed::kNotCovered:
      return "; the flag's release does not cover it";
    default:
      return "";
  }
}

}  // namespace

// In a loop it may be another round's first one whose access is found.
uint32_t apart(const StreamOperation& one, const StreamOperation& other) {
  const bool ahead = one.asked < other.asked;
  const StreamOperation& first = ahead ? one : other;
  const StreamOperation& second = ahead ? other : one;
  const std::lock_guard lock(nearest_guard);
  const auto [known, made] = nearest.try_emplace({first.pc, &second}, first.asked);
  for (auto each = operations.begin(); made && each != operations.end(); ++each) {
    const StreamOperation& again = *each->second;
    if (again.pc != first.pc || again.asked >= second.asked) continue;
    known->second = std::max(known->second, again.asked);
  }
  return second.asked - known->second;
}

std::string unordered_text(const StreamOperation& operation, const StreamOperation& earlier,
                           bool wrote, bool waited, Handed handed) {
  const std::string done = earlier.kind == StreamOperation::Kind::kAllocate ? " allocates"
                           : wrote                                          ? " writes"
                                                                            : " reads";
  if (earlier.kind == StreamOperation::Kind::kFree) {
    const bool over = (waited ? operation.waited : operation.before).covers(earlier);
    return " that " + earlier.name + (over ? " has freed" : " frees: nothing orders the two");
  }
  if (operation.launched_by == &earlier) {
    return " that " + earlier.name + done +
           " behind the launch, or without order with the thread that launches";
  }
  if (!is_ahead(operation, earlier)) {
    const bool by_host = earlier.kind == StreamOperation::Kind::kHost ||
                         operation.kind == StreamOperation::Kind::kHost;
    if (handed == Handed::kNarrow) {
      return " that " + earlier.name + done +
             " and makes known at the scope of the GPU, which does not reach " +
             (by_host ? "the host" : "another GPU");
    }
    return " that " + earlier.name + done +
           (by_host ? ": nothing has made the host wait" : ": nothing orders the two") +
           flag_text(handed, by_host);
  }
  if (waited) {
    return " that " + earlier.name + done +
           ", and that griddepcontrol.wait does not wait for: " + between(operation, earlier) +
           " never executed griddepcontrol.wait (cudaGridDependencySynchronize)";
  }
  return " that " + earlier.name + ", ahead of it in the stream," + done +
         ", before griddepcontrol.wait (cudaGridDependencySynchronize)";
}

namespace {

std::string name_in(const std::map<const std::byte*, FreedMemory>& all, const std::byte* at) {
  const auto next = all.upper_bound(at);
  const bool none = next == all.begin() || std::prev(next)->second.end <= at;
  return none ? "" : " of " + std::prev(next)->second.name;
}

}  // namespace

std::string not_owned_text(const std::byte* at) {
  const std::string name = name_in(freed, at);
  return name.empty() ? name_in(out_of_reach, at) : name + ", which the program has freed";
}

bool hands_over() {
  return lengths.size() > 2 || host_polls;  // the host's line is the first
}

bool several_hosts_poll() {
  return several_poll;
}

void operation_launched(const Launch& launch) {
  StreamOperation* const operation = launch.operation;
  if (current == nullptr || operation == nullptr || launch.whole->operation != current) return;
  operation->waits &= launch.waited;
  operation->triggers |= launch.triggered;
  operation->triggers_after_wait |= launch.started_after_wait;
  // What it has released is kept as that of the whole launch.
  if (operation == current) return;
  operation->numbers = {launch.serial, current->numbers.first, current->numbers.last};
}

std::shared_ptr<Words> lasting_words(const std::byte* begin, size_t count) {
  if (!is_program) return nullptr;
  std::shared_ptr<Words>& words = shadows[begin];
  if (words == nullptr || words->count != count) {
    words = std::make_shared<Words>(count);
    words->fresh = fresh.count(begin) != 0;
  }
  return words;
}

namespace {

// An access of an operation that is no launch: of a word the bytes of the mask.
class Touching {
 public:
  // `looks`: by an instruction of the host that polls.
  Touching(Words& words, const StreamOperation& operation, bool writing, std::string name, Pc pc,
           bool looks)
      : words_(words),
        operation_(operation),
        writing_(writing),
        name_(std::move(name)),
        pc_(pc),
        polls_(looks),
        looks_(looks || !host_polls) {
    mine_.serial = static_cast<uint32_t>(new_serial());
    mine_.cluster = Access::kManyClusters;
    mine_.place = place_of(pc, "an access");
    by_host_ = operation.kind == StreamOperation::Kind::kHost;
    mine_.atomic = operation.at_word || (by_host_ && writing);
    mine_.scope = static_cast<uint32_t>(operation.at_word ? Scope::kSystem : Scope::kGpu);
  }

  void range(size_t first, size_t last) {
    for (size_t word = first / 4; word * 4 < last && word < words_.count; ++word) {
      const size_t low = std::max(word * 4, first) - word * 4;
      const size_t high = std::min(last - word * 4, size_t{4});
      mine_.bytes = ((1u << high) - 1) & ~((1u << low) - 1) & 0xf;
      touch(word);
    }
  }

 private:
  // What has read memory before it is allocated tells more than that it has been freed since.
  void touch(size_t word) {
    Access& writer = words_.writer(word);
    const bool allocates = operation_.kind == StreamOperation::Kind::kAllocate;
    if (!allocates) check(writer, true, word);
    Access* const others = writing_ ? words_.others(word) : words_.make_others(word);
    if (!writing_) {
      check_written(writer, word);
      keep_other(others, mine_, &operation_);
      return;
    }
    for (uint32_t i = 0; others != nullptr && i < 2; ++i) check(others[i], others[i].atomic, word);
    if (allocates) check(writer, true, word);
    const bool frees = operation_.kind == StreamOperation::Kind::kFree;
    if (others != nullptr && mine_.bytes == 0xf && !frees) std::fill_n(others, 2, Access{});
    writer = mine_;
    writer.written = allocates ? 0 : 0xf;
  }

  void check_written(const Access& writer, size_t word) {
    if (!words_.fresh || noted_ || (writer.written & mine_.bytes) == mine_.bytes) return;
    noted_ = true;
    keep_once(outside_launches.notes,
              {.kind = Class::kUnwritten,
               .pc = pc_,
               .buffer = name_ + " + " + std::to_string(word * 4),
               .text = operation_.name + " reads " + name_ + " that nothing has written"});
  }

  void check(const Access& earlier, bool wrote, size_t word) {
    if (earlier.serial == 0 || reported_ || (earlier.bytes & mine_.bytes) == 0) return;
    if (!writing_ && !wrote) return;
    // Of a large array neighbours have been accessed alike.
    if (std::exchange(checked_[wrote ? 1 : 0], earlier) == earlier) return;
    if (earlier.atomic && by_host_ && polls_) flags_seen.insert(operation_of(earlier.serial));
    if (earlier.atomic && by_host_ && (looks_ || writing_)) return;
    if (earlier.atomic && operation_.at_word) return;
    const StreamOperation* other = operation_of(earlier.serial);
    if (other == &operation_) return;
    const Handed handed = handed_over(operation_, earlier, wrote, false, nullptr);
    const bool after = handed == Handed::kYes;
    // A graph's allocation comes behind the release of its last launch.
    const bool allocates = operation_.kind == StreamOperation::Kind::kAllocate;
    if (after && (allocates || other == nullptr || other->kind != StreamOperation::Kind::kFree))
      return;
    reported_ = true;
    const char* const does = operation_.kind == StreamOperation::Kind::kFree ? " frees "
                             : allocates                                     ? " allocates "
                             : writing_                                      ? " writes "
                                                                             : " reads ";
    Finding finding{.kind = after ? Class::kOutOfBounds : Class::kRace,
                    .pc = pc_,
                    .other_pc = place_pc(earlier),
                    .formal = handed == Handed::kSupposed,
                    .apart = apart(operation_, *other),
                    .buffer = name_ + " + " + std::to_string(word * 4),
                    .text = operation_.name + does + name_ +
                            unordered_text(operation_, *other, wrote, false, handed)};
    // Whether the host's load is atomic does not show: what fails tells, unless a flag that the
    // host has seen comes behind the store and does not order the two.
    const bool strong = earlier.atomic && earlier.scope == static_cast<uint32_t>(Scope::kSystem);
    const bool unflagged = handed == Handed::kNone && flags_seen.count(other) == 0;
    const bool told = several_poll && is_released(*other, earlier);
    if (by_host_ && (told || (strong && unflagged))) {
      return keep_once(outside_launches.notes, std::move(finding));
    }
    report_outside(std::move(finding));
  }

  Words& words_;
  const StreamOperation& operation_;
  const bool writing_;
  const std::string name_;
  const Pc pc_;
  Access mine_ = {};
  Access checked_[2] = {};
  bool by_host_ = false;  // strong accesses of a kernel are no race with what the host polls
  const bool polls_, looks_;
  bool reported_ = false;
  bool noted_ = false;
};

// Everything that has been asked for is done, and the host knows it: whatever comes is behind it.
void forget_order() {
  forget_handovers();
  operations.clear();
  accesses_of_host.clear();
  by_serial.clear();
  first_serial = launches_begun() + 1;
  lengths.clear();
  asked_for = 0;
  nearest.clear();
  host = {};
  host_polls = several_poll = false;
  flags_seen.clear();
  current = nullptr;
  dropped.clear();
}

// Of the current operation; nothing of an allocation that is known to hold all that it reads.
void touch(const void* allocation, uint64_t size, const char* name, const void* at, uint64_t bytes,
           bool writing, Pc pc, bool looks) {
  const auto* begin = static_cast<const std::byte*>(allocation);
  const auto first = static_cast<size_t>(static_cast<const std::byte*>(at) - begin);
  const std::shared_ptr<Words> words = lasting_words(begin, (size + 3) / 4);
  Touching(*words, *current, writing, name, pc, looks).range(first, first + bytes);
  if (!writing) return;
  forget_released(at, static_cast<const std::byte*>(at) + bytes);
  if (current->kind == StreamOperation::Kind::kHost && current->line == 0) {
    release_by_host(at, bytes);
  }
}

// The host does something, behind all that it knows of; `current` meanwhile.
template <typename Action>
void by_host(Pc pc, const Action& action) {
  auto made = std::make_unique<StreamOperation>();
  made->kind = StreamOperation::Kind::kHost;
  made->number = next_on(0);
  made->asked = asked_for;
  made->name = "the host";
  made->pc = pc;
  made->outside = made->before = made->waited = host;
  host.add(*made);
  StreamOperation* const before = std::exchange(current, made.get());
  accesses_of_host.push_back(std::move(made));
  action();
  current = before;
}

}  // namespace

}  // namespace kb::emu

using namespace kb::emu;

// What the CUDA runtime of a program calls; see kernelbench/ptx/hosts/cuda_runtime/order.hpp.
#define KB_EMU_EXPORT extern "C" __attribute__((visibility("default")))

// A program begins, or has ended.
KB_EMU_EXPORT void kb_emu_program(int begins) {
  forget_order();
  shadows.clear();
  fresh.clear();
  freed.clear();
  forget_met_words(nullptr, reinterpret_cast<const void*>(UINTPTR_MAX));
  if (begins != 0) outside_launches = {};
  is_program = begins != 0;
}

// The program asks for an operation: after those that are named, and after what the host knows of.
// `stream`: what is said of it behind the name. `ahead`: the launch whose end it need not wait for,
// or 0.
KB_EMU_EXPORT void kb_emu_operation(uint64_t number, uint32_t line, int kind, const char* name,
                                    const char* stream, const void* pc, uint64_t ahead,
                                    const uint64_t* after, uint64_t count, uint32_t gpu) {
  if (!is_program) return;
  auto made = std::make_unique<StreamOperation>();
  made->kind = static_cast<StreamOperation::Kind>(kind);
  made->gpu = gpu;
  made->line = line;
  made->number = next_on(line);
  made->asked = asked_for++;
  made->name = (made->kind == StreamOperation::Kind::kLaunch ? "kernel " : "") + plain(name);
  made->name += stream;
  made->pc = pc;
  made->outside = host;
  for (uint64_t i = 0; i < count; ++i) {
    if (const StreamOperation* each = found(after[i])) made->outside.join(each->through);
  }
  made->through = made->outside;
  if (const StreamOperation* before = found(ahead)) {
    made->ahead = before;
    made->through.join(before->through);
  }
  made->through.add(*made);
  operations[number] = std::move(made);
}

// A kernel that has ended has launched something: that comes after this, which knows what the
// launching thread knew, and released by the word (device_launches.cpp).
KB_EMU_EXPORT void kb_emu_launched_by(uint64_t number, uint32_t line, uint64_t kernel,
                                      const void* word) {
  const StreamOperation* const by = found(kernel);
  if (by == nullptr) return;
  auto made = std::make_unique<StreamOperation>();
  made->line = line;
  made->number = next_on(line);
  made->asked = asked_for++;
  made->outside = by->waits ? by->waited : by->before;
  made->through = made->outside;
  made->through.add(*made);
  StreamOperation* const before = std::exchange(current, made.get());
  note_acquired({.certain = released_before(word).certain});
  current = before;
  operations[number] = std::move(made);
}

// Operations that have been asked for belong to another one: a launch that has made them. It is
// complete only when they are, for all but each other.
KB_EMU_EXPORT void kb_emu_operations_within(uint64_t number, const uint64_t* within,
                                            uint64_t count) {
  const StreamOperation* const whole = found(number);
  if (whole == nullptr) return;
  const auto add = [&](Past& past) {
    if (!past.covers(*whole)) return;
    for (uint64_t i = 0; i < count; ++i) past.add(*found(within[i]));
  };
  for (const auto& [each, operation] : operations) {
    if (std::find(within, within + count, each) != within + count) {
      operation->launched_by = operation->outside.covers(*whole) ? nullptr : whole;
      continue;
    }
    add(operation->outside);
    add(operation->through);
  }
  add(host);
}

// The operation that is done now has waited for what another one has written: it comes after that,
// and so does what comes after it.
KB_EMU_EXPORT void kb_emu_operation_after(uint64_t number, uint64_t earlier) {
  const StreamOperation* const waits = found(number);
  const StreamOperation* const wrote = found(earlier);
  if (waits == nullptr || wrote == nullptr) return;
  for (const auto& [each, operation] : operations) {
    for (Past* past : {&operation->outside, &operation->through}) {
      if (each == number || past->covers(*waits)) past->join(wrote->through);
    }
  }
  if (host.covers(*waits)) host.join(wrote->through);
}

// The operation that is done now has waited for a value of a word (CUDA driver API,
// cuStreamWaitValue32: work behind it blocks until then).
// Assumption: it acquires there, as a thread of its GPU would.
KB_EMU_EXPORT void kb_emu_operation_acquires(const void* word) {
  if (current != nullptr) note_acquired(released_before(word));
}

// The operation that is done now is about to write a word that others may poll, or has, behind a
// fence (CUDA driver API, CUstreamWriteValue_flags).
// Assumption: it is a strong store at the scope of the system, and with the fence a release.
KB_EMU_EXPORT void kb_emu_operation_at_word(const void* written) {
  if (current == nullptr) return;
  current->at_word = true;
  if (written != nullptr) release_by_stream(written);
}

KB_EMU_EXPORT void kb_emu_begin_operation(uint64_t number) {
  current = found(number);
  if (current != nullptr) settle(*current);
}

KB_EMU_EXPORT void kb_emu_end_operation() {
  current = nullptr;
}

// The GPU of the current operation.
KB_EMU_EXPORT uint32_t kb_emu_gpu() {
  return current != nullptr ? current->gpu : 0;
}

// The current operation reads or writes a range of an allocation.
KB_EMU_EXPORT void kb_emu_touched(const void* allocation, uint64_t size, const char* name,
                                  const void* at, uint64_t bytes, int writing) {
  if (current == nullptr || bytes == 0) return;
  touch(allocation, size, name, at, bytes, writing != 0, current->pc, false);
}

// The host reads or writes such a range, while something is pending that may access it; or a
// function of the host that is the current operation. `looks`: by an instruction that polls.
// PTX: 8.9: an observer of a word has what its writers have released at the scope of the system.
// Assumption: a look of the host's at what it polls acquires, and at what a kernel has released to
// the system, as a load of x86 does.
KB_EMU_EXPORT void kb_emu_host_touched(const void* allocation, uint64_t size, const char* name,
                                       const void* at, uint64_t bytes, int writing, const void* pc,
                                       int looks) {
  if (!is_program) return;
  const auto access = [&] {
    const Released released = released_before(at);
    const bool looks_at = looks != 0 || (writing == 0 && released.of_system != nullptr);
    touch(allocation, size, name, at, bytes, writing != 0, pc, looks_at);
    if (looks_at) note_acquired(released);
  };
  if (current != nullptr) return access();
  by_host(pc, access);
}

// The host polls: what is pending will be done for it, of which it knows what it sees.
// Not modelled: what another of its threads sees while a kernel goes on. What is in no order with
// the host is a note then if somebody has released it: that thread may have acquired it.
KB_EMU_EXPORT void kb_emu_host_polls(int side_by_side) {
  host_polls = is_program;
  several_poll = host_polls && (several_poll || side_by_side != 0);
}

// What the host's code does wrong: it polls a word for ever, or accesses memory that is freed.
KB_EMU_EXPORT void kb_emu_host_found(int hangs, const void* pc, const char* text) {
  if (is_program)
    report_outside(
        {.kind = hangs != 0 ? Class::kHang : Class::kOutOfBounds, .pc = pc, .text = text});
}

// What may explain that main fails: a race with the host, for which there is no finding otherwise.
KB_EMU_EXPORT void kb_emu_note(const void* pc, const char* text) {
  if (!is_program) return;
  keep_once(outside_launches.notes, {.kind = Class::kRace, .pc = pc, .text = text});
}

// An allocation of the GPU's memory holds nothing yet.
KB_EMU_EXPORT void kb_emu_fresh(const void* allocation) {
  if (!is_program) return;
  const auto* begin = static_cast<const std::byte*>(allocation);
  fresh.insert(begin);
  std::erase_if(
      freed, [begin](const auto& each) { return each.first <= begin && begin < each.second.end; });
}

// The host has waited for an operation, or seen that it is done.
KB_EMU_EXPORT void kb_emu_host_knows(uint64_t number) {
  if (const StreamOperation* operation = found(number)) host.join(operation->through);
}

KB_EMU_EXPORT void kb_emu_all_done() {
  if (is_program) forget_order();
}

// The allocation is there no longer.
KB_EMU_EXPORT void kb_emu_freed(const void* allocation, uint64_t bytes, const char* name) {
  if (is_program) {
    const auto* begin = static_cast<const std::byte*>(allocation);
    freed[begin] = {begin + bytes, name};
  }
  fresh.erase(static_cast<const std::byte*>(allocation));
  const auto found = shadows.find(static_cast<const std::byte*>(allocation));
  if (found == shadows.end()) return;
  forget_met_words(found->first, found->first + 4 * found->second->count);
  forget_released(found->first, found->first + 4 * found->second->count);
  shadows.erase(found);
}

// Before it is freed: whether operations of other lines than this one may be accessing it still, as
// a number for kb_emu_reused; 0 if none is.
KB_EMU_EXPORT uint64_t kb_emu_dropped(const void* allocation, uint32_t line) {
  const auto found = shadows.find(static_cast<const std::byte*>(allocation));
  if (!is_program || found == shadows.end()) return 0;
  Words& words = *found->second;
  const auto pending = [line](const Access& access) {
    const StreamOperation* const by = access.serial != 0 ? operation_of(access.serial) : nullptr;
    return by != nullptr && by->line != line && !host.covers(*by);
  };
  for (size_t word = 0; word < words.count; ++word) {
    const Access* const others = words.others(word);
    if (pending(words.writer(word)) ||
        (others != nullptr && (pending(others[0]) || pending(others[1])))) {
      dropped[++drops] = found->second;
      return drops;
    }
  }
  return 0;
}

// The current operation is the first that uses memory of what was dropped.
KB_EMU_EXPORT void kb_emu_reused(uint64_t number, const char* name) {
  const auto found = dropped.find(number);
  if (current == nullptr || found == dropped.end()) return;
  const std::shared_ptr<Words> words = found->second;
  dropped.erase(found);
  Touching(*words, *current, true, name, current->pc, false).range(0, 4 * words->count);
}

// Kernels that run from now on cannot access that; null: nothing is out of reach.
KB_EMU_EXPORT void kb_emu_out_of_reach(const void* allocation, uint64_t bytes, const char* text) {
  const auto* begin = static_cast<const std::byte*>(allocation);
  if (begin == nullptr) out_of_reach.clear();
  if (begin != nullptr) out_of_reach[begin] = {begin + bytes, text};
}

// What was found where no launch was: as kb_emu_report says it.
KB_EMU_EXPORT const char* kb_emu_program_report() {
  report_text = collected_json(outside_launches) + ",\"launches\":0,\"switches\":0,\"seconds\":0}";
  return report_text.c_str();
}
