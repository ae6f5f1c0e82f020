// What has been found since the last kb_emu_configure: findings.cpp gathers it, hang.cpp adds the
// waits of a hang, findings_json.cpp writes it.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "core.hpp"
#include "findings.hpp"

namespace kb::emu {

struct Found {
  Finding finding;
  uint64_t count = 1;
  Where where;
  std::set<int32_t> readers = {};
};

// Lanes of one warp that wait for the same thing.
struct WaitRecord {
  CtaIndex cta;
  uint32_t rank;
  uint32_t warp;
  uint32_t lanes;
  Wait wait;
  bool has_barrier;
  uint64_t phase;
  uint32_t pending;
  uint32_t expected;
  int64_t tx;
  Pc init_pc;
  Pc arrive_pc;  // the barrier's last arrival, or the word's last change; null: none
  const char* shared_type;
  bool triggered = false;  // its CTA has let dependent grids begin
  bool skips = false;      // the thread has seen an mbarrier's last phase but one, not the last
  uint32_t before = 0;     // threads that a named barrier was for the last time
  std::string word = {};   // of global memory: where it is, and what it holds
};

// What a checked kernel's CTAs have: shared memory of the launch, and columns of TMEM at most.
struct MemoryRecord {
  Pc pc;
  const char* shared_type;
  uint32_t shared_bytes;
  uint32_t columns;
};

struct Collected {
  std::vector<Found> findings;
  std::vector<Found> causes;
  std::vector<Found> notes;  // of a program: what may explain that it fails
  std::vector<WaitRecord> waits;
  uint64_t ctas_at_words = 0;  // that wait for a value in global memory, of all
  std::vector<MemoryRecord> memory;
  uint64_t dropped = 0;  // findings beyond Options::max_findings
};

// The name of a class, as the reader knows it.
const char* class_name(Class kind);
// An object without its end: who calls adds what it counts.
std::string collected_json(const Collected& collected);
// Keeps what the threads of a hang wait for; of more than can be read, the first.
void note_waits(const std::vector<WaitRecord>& found);

// Keeps a finding, or counts it at the same lines.
void keep_once(std::vector<Found>& among, Finding finding);

// Keeps what a CTA has of memory, once for each type of SharedStorage.
void note_memory(const Cta& cta, Pc pc);

}  // namespace kb::emu
