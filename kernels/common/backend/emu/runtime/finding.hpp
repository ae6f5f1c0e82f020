// What can be wrong, as the checker says it. findings.cpp collects findings; the Python reader
// resolves their addresses and puts causes before symptoms.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "options.hpp"
#include "ptx/types.cuh"

namespace kb::emu {

// What went wrong. The names in findings_json.cpp are the reader's vocabulary.
enum class Class : uint8_t {
  kHang,              // nothing can run and nothing is pending, or a loop never gives way
  kTimeout,           // the launch lasts too long, and goes on
  kRace,              // two accesses, one a write, without order between them
  kEarlyRead,         // bytes of a copy or accumulator read before its completion was observed
  kOverwrite,         // bytes overwritten while an asynchronous operation or a reader needs them
  kProxyFence,        // generic write not made visible to the async proxy
  kTensorMapProxy,    // tensor map used without acquiring its last change
  kArrivalCount,      // more arrivals than the phase expects
  kTransactionCount,  // bytes expected and bytes completed do not match
  kPhase,             // a waiter is two phases off
  kBarrierState,      // barrier used before its initialization is visible, or overwritten, or
                      // reinitialized
  kNamedBarrier,      // participants disagree or are missing
  kDivergence,        // lanes of a warp do not execute a collective operation together
  kTmemAllocation,    // allocated, freed or leaked wrongly
  kTmemBounds,        // outside the allocation, or another warp's lanes
  kDescriptor,        // descriptor or instruction field that the hardware does not take
  kAlignment,
  kOutOfBounds,  // memory that no buffer owns, or beyond shared memory
  kExit,         // CTA exits with operations in flight or peers that need it
  kCrash,        // segmentation fault or stack overflow in the kernel's code
  kOrder,        // e.g. a commit by a thread that issued nothing
  kUnwritten,    // memory read before anything was written there
  kNotReset,     // a counter that an earlier call has left changed
};

// The CTA and thread of a finding; the thread is -1 outside any.
struct Where {
  CtaIndex cta = {};
  uint32_t rank = 0;
  int32_t thread = -1;
  const char* shared_type = nullptr;
};
// Of what runs now.
Where where_now();

// One finding, before the reader resolves addresses. Repeats (same class, pc, other_pc) are
// counted.
struct Finding {
  Class kind;
  Pc pc = nullptr;             // the access or call at fault
  Pc other_pc = nullptr;       // the one that it conflicts with
  int64_t shared_offset = -1;  // of the object, from the start of SharedStorage
  int64_t tmem_column = -1;
  int32_t other_thread = -1;
  std::optional<Where> where;  // if it is not the running thread, or task
  bool abroad = false;         // the other access is another CTA's
  bool one_warp = false;       // both are lanes of one warp, in every repeat
  bool formal = false;         // every implementation orders it, in every repeat
  bool same_value = false;     // both store the same to it, in every repeat
  bool follows = false;  // an overwrite, where one is found, may be its cause, in every repeat
  // Of a race of a load with a store of one CTA: the thread that loads; each repeat has its own.
  std::optional<int32_t> reader = {};
  // Of a race of two operations of a program: how many it has asked for between them.
  uint32_t apart = 0;
  std::string buffer;  // of global memory, with the place in it
  std::string text;    // one sentence; no addresses
};
// Records a finding of the running thread (or of no thread) and goes on.
void report(Finding finding);
// Records what may explain the findings of this call, or its wrong results; none by itself.
void note_cause(Finding finding);
// Records what may explain that a program's main fails, or that a launch ends early.
void note(Finding finding);
// Records a finding of the running thread if the launch ends without any; else it may explain them.
void report_if_nothing_else(Finding finding);
// Records a finding and ends the launch; does not return to the kernel.
[[noreturn]] void fail(Finding finding);

}  // namespace kb::emu
