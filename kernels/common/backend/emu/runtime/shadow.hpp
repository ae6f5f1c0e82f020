// Accesses to memory and what the checker keeps of them: the last writer and readers of each cell
// of shared and tensor memory (shadow.cpp), what the async proxy sees of shared memory
// (shared_access.cpp; PTX ISA 9.1, 8.6: proxies), and which global buffer is whose (memory.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "knowledge.hpp"

namespace kb::emu {

// Last writer and readers of each cell. Reports accesses without order.
class Shadow {
 public:
  enum class Space : uint8_t { kShared, kTmem };
  Shadow(Cta& cta, Space space, uint32_t cells);
  void read(uint32_t first, uint32_t count, const Actor& actor);
  void write(uint32_t first, uint32_t count, const Actor& actor);
  // Reports a read of cells that nothing has written; `read` calls it where that is a fault.
  void check_written(uint32_t first, uint32_t count, const Actor& actor);
  // Notes that what an atomic makes of a cell is made of nothing.
  void note_unwritten(uint32_t cell, const Actor& actor);
  // Whether the last write of a cell is visible to the async proxy.
  bool published(uint32_t cell, const Actor& actor) const;
  void reset();

 private:
  void check_writer(uint32_t cell, uint32_t writer, const Actor& actor, bool reading);
  void check_readers(uint32_t cell, uint32_t reader, const Actor& actor);
  bool check_reader_record(uint32_t cell, uint32_t index, const Actor& actor);
  bool check_writer_record(uint32_t cell, uint32_t record, const Actor& actor, bool reading);
  Cta& cta_;
  Space space_;
  std::vector<uint32_t> writer_;  // entries of the cluster's log; 0: none
  std::vector<uint32_t> reader_;
};

// Accesses of an async operation or a primitive to shared memory, checked at its issue. Offsets are
// from the start of the CTA's shared memory. No-ops when not checking, but for bounds, which always
// count: beyond the kernel's shared_bytes is a finding that ends the launch.
//
// shared_read returns the 4-byte cells that the async proxy does not see up to date (empty for
// generic actors and almost always); hand them to shared_async_bytes.
using StaleCells = std::vector<uint32_t>;
StaleCells shared_read(Cta& cta, uint32_t offset, uint32_t bytes, const Actor& actor);
void shared_write(Cta& cta, uint32_t offset, uint32_t bytes, const Actor& actor);
// Copies [offset, offset + bytes) as the async proxy sees it, when the operation executes.
void shared_async_bytes(const Cta& cta, uint32_t offset, uint32_t bytes, const StaleCells& stale,
                        void* out);

// Whether an address is a multiple of the access size, a power of two; a finding that ends the
// launch if not.
void check_alignment(const void* at, size_t bytes, Pc pc, const char* what);

// Whether [pointer, pointer + bytes) lies in one registered global buffer; a finding that ends the
// launch if not. `what` names the access. Always checked. Loads of padding are not accesses.
void global_access(const void* pointer, size_t bytes, bool writing, Pc pc, const char* what);

// An atomic of the running thread, checked and kept: with other atomics there is no race.
// `returns`: what was there.
void global_changed(const void* pointer, size_t bytes, Pc pc, const char* what,
                    bool returns = false, Scope scope = Scope::kGpu);
// A word by which threads release and acquire: of global memory, or of the CTA's shared memory.
struct SyncWord {
  SyncWord(const uint32_t* at, const Cta* cta = nullptr) : at(at), cta(cta) {}
  const uint32_t* at;
  const Cta* cta;  // null for global memory; CTAs of a launch may have the same addresses
  friend bool operator==(const SyncWord&, const SyncWord&) = default;
};
// Before a strong write changes a word, and after a strong read, or an atomic, has its value.
void counter_release(SyncWord word, bool releases, Scope scope = Scope::kGpu);
void counter_observe(SyncWord word, Scope scope = Scope::kGpu);
// A wait for a word has ended, which acquires; a word is about to be used by atomics or waits.
// `meeting`: CTAs wait there for a bit to change.
void counter_acquire(SyncWord word, Scope scope = Scope::kGpu);
void counter_used(const uint32_t* word, bool meeting);
// Whether any CTA of this launch has written there. False when not checking.
bool written_in_launch(const void* pointer, size_t bytes);

}  // namespace kb::emu
