// Livelock: threads that all go round, each changing what the others look at, and nothing comes of
// it. Where nothing can run it is a hang (hang.cpp); here everybody can.
#pragma once

#include <cstdint>

#include "options.hpp"

namespace kb::emu {

// Strong accesses of an OS thread since something else has happened, until they are looked at.
inline constexpr uint32_t kSpinsUnwatched = 1u << 17;

// A strong access behind the first of these: what the word holds, and whether it was changed.
// False if it is none so far.
bool watch_spin(const void* at, uint32_t bytes, uint64_t value, Pc pc);
// A cluster has started or a thread ended, something was issued or has completed: no livelock.
void end_spinning();
// Whether the launch goes round for ever.
bool livelocked();
// And whether words change: or its threads look at more than is remembered of a loop that polls.
bool livelock_changes_words();
void forget_spins();

}  // namespace kb::emu
