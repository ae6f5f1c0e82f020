// The shadow of global memory: order between CTAs, between grids of a stream, and what nobody has
// written (global_shadow.cpp); what atomics on a word release, and what a call leaves in one
// (counters.cpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "finding.hpp"
#include "knowledge.hpp"
#include "regions.hpp"

namespace kb::emu {

// Checks an access by the running thread, or by a copy that it issues, and keeps it. Only when
// checking. A load by a copy returns whether anything was there: of a tile some rows may be empty.
bool global_load(Region& region, const void* pointer, size_t bytes, const Actor& actor);
void global_store(Region& region, const void* pointer, size_t bytes, const Actor& actor);
// The same by address; what is in no buffer was reported before.
bool global_load(const void* pointer, size_t bytes, const Actor& actor);
void global_store(const void* pointer, size_t bytes, const Actor& actor);
// Whether such an access can be in conflict: reads of inputs cannot.
bool global_watched(const void* pointer, bool writing);
// Reports a copy none of whose bytes anybody has written.
void report_unwritten(const void* pointer, bool strong, bool writing, Pc pc, const char* what);

// Keeps a reader, or an atomic that the last one is in no order with, among the two of its word;
// of an operation of a program, or null.
void keep_other(Access* others, const Access& access, const StreamOperation* operation);
// The number of a place in the code, and what was done there.
uint16_t place_of(Pc pc, const char* what);
// Where in the code a kept access was.
Pc place_pc(const Access& access);
const char* place_what(const Access& access);

// counters.cpp
// What the running thread's atomics have seen released and no fence has made its own yet covers an
// access of another cluster: stores that depend on the atomic come after it.
bool observed_by_atomic(const Thread& thread, const Access& earlier);
// An atomic on what one of an earlier call has left.
void note_carried(const Region& region, size_t word, const Access& left, const Actor& actor);
// A strong access of a program's kernel to a word that this launch has not changed yet.
void meet_word(const Region& region, size_t word, const Access& writer, const Actor& actor);
// Where such a word was changed last before the launch.
Pc changed_before(const void* word);
void forget_met_words(const void* begin, const void* end);
// A plain load of a word that atomics change: reported at the end of the launch, unless CTAs meet
// there.
void defer_to_word(const uint32_t* word, Finding finding);
void settle_counters();
// late_stores.cpp: a strong store, which others may see late; one that is seen at once; and what a
// strong load sees, of what is there or was before.
void store_may_come_late(const void* at, uint32_t bytes, uint64_t before, Pc pc);
void store_is_seen(const void* at);
uint64_t seen_at(const void* at, uint32_t bytes, uint64_t value, Pc pc);
void note_late_stores();  // at the end of a launch
// The host of a program goes on in the middle of a launch, and has gone on.
void hand_to_host();
void take_from_host();
// Launches from here on belong to another call.
void begin_call();
// The serial of its first launch.
uint64_t call_began();
// For kb_emu_sync_words.
void forget_sync_words();
// The host has written there, or freed it.
void forget_counters(const std::byte* begin, const std::byte* end);

}  // namespace kb::emu
