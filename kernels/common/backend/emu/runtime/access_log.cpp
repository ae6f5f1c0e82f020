// The log of accesses. An epoch stands for all that its actor did in it (as in FastTrack, Flanagan
// and Freund 2009), so that a loop over a tile makes few records.
#include "access_log.hpp"

namespace kb::emu {

void AccessLog::clear() {
  records_.resize(1);
  sets_.clear();
  rooms_.clear();
  members_.clear();
  latest_ = {};
  joined_ = {};
}

uint32_t AccessLog::record_of(const Actor& actor) {
  // A loop's accesses alternate between few places.
  const size_t place =
      reinterpret_cast<uintptr_t>(actor.pc) * 7 + actor.component * 5 + actor.bytes;
  uint32_t& latest = latest_[place % latest_.size()];
  const AccessRecord& record = records_[latest];
  if (latest == 0 || record.component != actor.component || record.epoch != actor.epoch ||
      record.pc != actor.pc || record.bytes != actor.bytes) {
    latest = static_cast<uint32_t>(records_.size());
    records_.push_back({actor.component, actor.epoch, actor.pc, actor.what, actor.thread,
                        actor.async, actor.tensor, actor.atomic, actor.bytes});
  }
  return latest;
}

uint32_t AccessLog::set_of(const std::vector<uint32_t>& records) {
  const auto count = static_cast<uint32_t>(records.size());
  const auto begin = static_cast<uint32_t>(members_.size());
  rooms_.push_back({count, 2 * count});
  members_.insert(members_.end(), records.begin(), records.end());
  members_.resize(begin + 2 * count);
  sets_.push_back({begin, count, static_cast<uint32_t>(rooms_.size() - 1)});
  return static_cast<uint32_t>(sets_.size() - 1) | kSetBit;
}

uint32_t AccessLog::with_member(Set set, uint32_t record) {
  Room& room = rooms_[set.room];
  if (room.used == set.count && room.used < room.size) {
    members_[set.begin + room.used++] = record;
    sets_.push_back({set.begin, set.count + 1, set.room});
    return static_cast<uint32_t>(sets_.size() - 1) | kSetBit;
  }
  left_.assign(members_.begin() + set.begin, members_.begin() + set.begin + set.count);
  left_.push_back(record);
  return set_of(left_);
}

uint32_t AccessLog::with_reader(uint32_t previous, uint32_t record, const Actor& actor) {
  if (previous == 0 || previous == record) return record;
  // A reader before this one, of no other bytes, needs no check later.
  const auto covered = [&](uint32_t index) {
    const AccessRecord& earlier = records_[index];
    return (earlier.bytes & ~actor.bytes) == 0 && ordered(earlier, actor);
  };
  if ((previous & kSetBit) == 0) {
    return covered(previous) ? record : set_of({previous, record});
  }
  const Set set = sets_[previous & ~kSetBit];
  // Nothing has ordered them since the first has read: nor the others, as a rule.
  if (set.count % 64 != 0 && !covered(members_[set.begin])) {
    const auto begin = members_.begin() + set.begin;
    const bool known = std::find(begin, begin + set.count, record) != begin + set.count;
    return known ? previous : with_member(set, record);
  }
  left_.clear();
  for (uint32_t at = 0; at < set.count; ++at) {
    const uint32_t index = members_[set.begin + at];
    if (index == record) return previous;
    if (!covered(index)) left_.push_back(index);
  }
  if (left_.empty()) return record;
  if (left_.size() == set.count) return with_member(set, record);
  // A copy: other cells may share the previous set.
  left_.push_back(record);
  return set_of(left_);
}

uint32_t AccessLog::with_writer(uint32_t previous, uint32_t record, const Actor& actor) {
  Joined& joined =
      joined_[((previous * 0x9e3779b1u + record) * 0x85ebca6bu >> 24) % joined_.size()];
  if (joined.previous != previous || joined.record != record) {
    joined = {previous, record, join(previous, actor)};
  }
  return joined.entry;
}

uint32_t AccessLog::join(uint32_t previous, const Actor& actor) {
  Actor writer = actor;
  std::vector<uint32_t> writers;
  visit(previous, [&](uint32_t index) {
    const AccessRecord& earlier = records_[index];
    const bool left = (earlier.bytes & ~actor.bytes) != 0;
    // Of another epoch it stays a record of its own: what others do to the bytes that are left may
    // be in order with it and not with this write.
    if (left && earlier.component == actor.component && earlier.epoch == actor.epoch) {
      writer.bytes |= earlier.bytes;
    } else if (left) {
      writers.push_back(index);
    }
    return true;
  });
  const uint32_t record = record_of(writer);
  if (writers.empty()) return record;
  writers.push_back(record);
  return set_of(writers);
}

}  // namespace kb::emu
