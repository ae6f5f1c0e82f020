// Operations of a whole program, and the order between them: launches, copies, fills, frees and the
// host's own accesses (operations.cpp). A launch of a step belongs to none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "finding.hpp"
#include "knowledge.hpp"

namespace kb::emu {

class Words;
struct Access;

// What has happened before something: of each line, a stream or the host, its first operations;
// and single ones beyond.
struct Past {
  std::vector<uint32_t> until;
  std::vector<const StreamOperation*> also;
  bool covers(const StreamOperation& operation) const;
  void join(const Past& other);
  void add(const StreamOperation& operation);  // with all ahead of it on its line
};

struct StreamOperation {
  enum class Kind : uint8_t { kNothing, kLaunch, kTransfer, kAllocate, kFree, kHost };
  Kind kind = Kind::kNothing;
  uint32_t line = 0;
  uint32_t number = 0;  // on its line, from 1
  uint32_t asked = 0;   // how many the program had asked for before
  uint32_t gpu = 0;
  std::string name;  // as findings have it
  Pc pc = nullptr;   // of the host's call
  // The launch ahead of it in its stream, whose end it need not wait for.
  const StreamOperation* ahead = nullptr;
  Past outside;  // what has happened when it begins, whatever `ahead` does
  Past through;  // and once it and all that is ahead of it in its stream have completed
  // Once it has begun: what has happened for a thread that does not know of a griddepcontrol.wait,
  // for one that does, and for the first under Assumption::kTriggersHandOn.
  Past before;
  Past waited;
  Past handed;
  bool at_word = false;  // it writes a word that others may poll
  // The launch whose kernel has launched it, if it need not wait for that one's end.
  const StreamOperation* launched_by = nullptr;
  // Of a launch, in all of its schedules, or in one.
  bool waits = true;
  bool triggers = false;
  bool triggers_after_wait = false;
  // Of a launch that has released something: the clusters of its last schedule for other launches.
  struct Numbers {
    uint64_t serial = 0;
    uint32_t first = 0;
    uint32_t last = 0;  // behind the last one
  } numbers;
  // By its threads, of other launches; and what they would have if fences of others counted. The
  // host has of both only what is released at the scope of the system.
  Abroad::Pointer acquired;
  Abroad::Pointer supposed;
  Abroad::Pointer of_system;
};

// The operation that does something now, of a thread its launch's; null outside of programs.
StreamOperation* current_operation();
// Of a launch or an access with that serial; null if all that comes now is behind it.
const StreamOperation* operation_of(uint64_t serial);
// A new serial belongs to that operation.
void note_serial(uint64_t serial, const StreamOperation* operation);
// Whether what `operation` does now comes after that access of another one: its writes, or of reads
// those before its CTA's trigger.
bool behind(const StreamOperation& operation, const Access& earlier, bool wrote, bool waited);
// Whose memory it was, as a finding has it; empty for memory that was nobody's.
std::string not_owned_text(const std::byte* at);
// The launch is over: whether it has waited for the one ahead, and triggered dependents.
void operation_launched(const Launch& launch);
// Whether a host polls that has threads beside the one that does.
bool several_hosts_poll();
// Whether launches may hand something to others by words of memory, or to a host that polls.
bool hands_over();

// handovers.cpp
// From here on numbers in Abroad are of what the host has released.
inline constexpr uint32_t kOfHost = 3u << 30;
// Likewise, of what operations of streams have.
inline constexpr uint32_t kOfStream = kOfHost - (1u << 28);
// By a word: what its writers have, and what they would have if fences of other threads counted; of
// both, what is released at the scope of the system.
struct Released {
  Abroad::Pointer certain;
  Abroad::Pointer supposed;
  Abroad::Pointer of_system;
};
// In launches of other operations, and at the end of a launch, with that serial.
Released released_before(const void* word);
// The host's store that goes on now: it is behind all that the host has done before, as its
// processor makes stores visible in their order (x86; elsewhere if it is a release).
void release_by_host(const void* at, size_t bytes);
// What the operation that is done now is behind, it hands on by the word.
void release_by_stream(const void* word);
void keep_released(const std::vector<std::pair<const void*, Released>>& words, uint64_t serial);
// A thread of the launch has acquired that, or would have; null for nothing.
void note_acquired(const Released& released);
// Whether this operation is behind that access of another one, or the access was handed over to it:
// to whoever knows that, or to an operation before it; by a flag whose release does not cover it,
// without a fence behind the flag, at a scope that does not reach the host or the GPU, or with
// fences of other threads.
enum class Handed : uint8_t { kNone, kNotCovered, kUnfenced, kNarrow, kSupposed, kYes };
Handed handed_over(const StreamOperation& operation, const Access& earlier, bool wrote, bool waited,
                   const Knowledge* knows);
// Whether somebody has released that access of an operation, for whoever acquires it.
bool is_released(const StreamOperation& by, const Access& access);
// How many operations the program has asked for between two, at least.
uint32_t apart(const StreamOperation& one, const StreamOperation& other);
// How a finding says that nothing orders an access with the earlier one.
std::string unordered_text(const StreamOperation& operation, const StreamOperation& earlier,
                           bool wrote, bool waited, Handed handed);
// Something else has written there.
void forget_released(const void* begin, const void* end);
void forget_handovers();

// device_launches.cpp: what kernels have launched, and is not made yet.
void forget_device_launches();
bool has_device_launches();

// The shadow of an allocation, which lives as long; null outside of programs.
std::shared_ptr<Words> lasting_words(const std::byte* begin, size_t count);

}  // namespace kb::emu
