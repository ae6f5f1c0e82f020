// Registered buffers of global memory (memory.cpp), and what launches did to their words
// (global_words.cpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace kb::emu {

// Of each four bytes of a buffer: who wrote them last, as launch << 32 | CTA + 1 or an atomic, and
// who read them, see Readers.
struct Words {
  explicit Words(size_t count) : writers(count), readers(count) {}
  std::vector<uint64_t> writers;
  std::vector<uint64_t> readers;
  // The last launches that wrote or read any of them: most buffers are for one of the two.
  std::atomic<uint64_t> written_in = 0;
  std::atomic<uint64_t> read_in = 0;
};

// PTX: 5.1, state space .global: memory that the host allocated. PTX knows no buffers; bounds are
// the emulator's own.
struct Region {
  const std::byte* begin;
  const std::byte* end;
  std::string name;
  bool writable;
  std::shared_ptr<Words> words;  // null when not checking
};

// The region that holds an address, or null; the last one found is looked at first.
const Region* region_at(const std::byte* byte);
// Allocated on first use: most registered buffers are inputs.
Words& words_of(const Region& region);

}  // namespace kb::emu
