// What a loop of the kernel's own looks at again and again: mbarriers by test_wait or try_wait,
// words by strong loads and by atomics that change nothing. polls.cpp tells when a thread only
// polls.
#pragma once

#include <cstdint>
#include <vector>

#include "options.hpp"
#include "wait.hpp"

namespace kb::emu {

struct Barrier;

// One object that a thread has looked at, and how it was.
struct Look {
  Wait::Kind kind = Wait::Kind::kNone;  // kMbarrier, kShared or kGlobal
  Pc pc = nullptr;
  const void* at = nullptr;  // the Barrier, or the word
  uint32_t bytes = 0;        // of the word
  uint32_t offset = 0;       // in shared memory
  uint32_t parity = 0;       // that a barrier was asked for
  uint64_t seen = 0;         // the barrier's phase, or the word's bits
  uint64_t times = 0;        // that it was the same again
  bool changed() const;
};

// What a thread has looked at since something of it has changed.
struct Polls {
  std::vector<Look> looks;
  bool since_sleep = false;  // looked at anything
  bool changed() const;
  // The looks of the loop that the thread is in: those that come as often as the others.
  std::vector<Look> current() const;
};

// The running thread looks at an object that is not yet as it wants it. Where it has seen the same
// before, others run; returns when something that it polls has changed, or it may look again.
void poll(const Look& look);
// It has seen what it wanted: if that is new, it no longer polls.
void polled(const void* at);
// A strong write of the running thread has changed a word of global memory.
void note_change(const void* at, Pc pc);
// nanosleep: others run.
void sleep_between_polls(Pc pc);
// A word's bits, of at most 16 bytes; of 16 both halves in one number.
uint64_t bits_at(const void* at, uint32_t bytes);

}  // namespace kb::emu
