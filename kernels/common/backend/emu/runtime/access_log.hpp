// The accesses of a cluster that its shadows (shadow.cpp) refer to by index: who has written a cell
// last, and who has read it since, is an entry, which is a record or a set of them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "knowledge.hpp"

namespace kb::emu {

// An access, or several by one actor in one epoch from one place.
struct AccessRecord {
  uint32_t component;
  uint32_t epoch;
  Pc pc;
  const char* what;
  int32_t thread;
  bool async;
  bool tensor;
  bool atomic;
  uint8_t bytes;  // of a cell, a bit each
};

inline constexpr uint8_t kWholeCell = 0xf;

// Whether the later actor knows of the earlier access.
// PTX: 8.9, causality order: base causality through synchronization, here one comparison of epochs.
inline bool ordered(const AccessRecord& earlier, const Actor& later) {
  return later.knows->seen.covers(earlier.component, earlier.epoch);
}

class AccessLog {
 public:
  // Forgets all: what starts anew has no past.
  void clear();
  // The access's record: the same for all that one actor does in one epoch at one place.
  uint32_t record_of(const Actor& actor);
  const AccessRecord& at(uint32_t record) const { return records_[record]; }
  // A cell's readers with one more; those that happened before it need not be kept.
  uint32_t with_reader(uint32_t previous, uint32_t record, const Actor& actor);
  // Who has written a cell's bytes once `actor`, with this record, has written its own.
  uint32_t with_writer(uint32_t previous, uint32_t record, const Actor& actor);

  // The records of an entry, until `visit` returns false.
  template <typename Visit>
  void visit(uint32_t entry, Visit&& visit) const {
    if ((entry & kSetBit) == 0) {
      visit(entry);
      return;
    }
    const Set set = sets_[entry & ~kSetBit];
    for (uint32_t at = 0; at < set.count; ++at) {
      if (!visit(members_[set.begin + at])) return;
    }
  }

 private:
  // An entry with this bit is a set: readers that are not ordered with each other, or writers of
  // different bytes.
  static constexpr uint32_t kSetBit = 0x80000000u;
  // What with_writer has lately made of an entry and a record: cells of a tile have the same ones.
  struct Joined {
    uint32_t previous;
    uint32_t record;
    uint32_t entry;
  };

  // Members of a set, one behind the other, with room for more: a set and those that have been made
  // of it by adding members share them.
  struct Set {
    uint32_t begin;
    uint32_t count;
    uint32_t room;  // index in rooms_
  };
  struct Room {
    uint32_t used;
    uint32_t size;
  };

  uint32_t set_of(const std::vector<uint32_t>& records);
  uint32_t with_member(Set set, uint32_t record);
  uint32_t join(uint32_t previous, const Actor& actor);

  std::vector<AccessRecord> records_{1};  // index 0: nobody
  std::vector<Set> sets_;
  std::vector<Room> rooms_;
  std::vector<uint32_t> members_;
  std::vector<uint32_t> left_;          // of a set, while another is made of it
  std::array<uint32_t, 256> latest_{};  // records by a hash of what they are of
  std::array<Joined, 256> joined_{};    // a record of 0 is nobody's
};

}  // namespace kb::emu
