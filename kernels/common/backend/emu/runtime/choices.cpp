// Decisions of schedules: kept as they are drawn, or taken from a list (choices.hpp). One OS thread
// runs a launch whose decisions are kept or taken.
#include "choices.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace kb::emu {

bool deciding = false;

namespace {

using Key = std::tuple<uint32_t, uint32_t, int32_t, uint32_t>;

bool replaying = false;
std::vector<Decision> kept;
std::map<Key, uint32_t> given;
uint64_t made = 0;

Key key_of(const Decision& which) {
  return {which.launch, which.cluster, which.who, which.number};
}

}  // namespace

uint32_t decide(const Decision& which, uint32_t drawn, uint32_t usual, uint32_t bound) {
  ++made;
  if (replaying) {
    const auto found = given.find(key_of(which));
    return found == given.end() ? usual : found->second % bound;
  }
  // Of a mask the same lane is elected each time.
  const bool known = which.who == kElected && !given.emplace(key_of(which), drawn).second;
  if (drawn != usual && !known) {
    kept.push_back(which);
    kept.back().value = drawn;
  }
  return drawn;
}

size_t decisions_kept() {
  return kept.size();
}

void amend_decision(size_t place, const Decision& which, uint32_t value, bool usual) {
  if (replaying) return;
  const auto at = kept.begin() + static_cast<ptrdiff_t>(place);
  const bool there = place < kept.size() && key_of(*at) == key_of(which);
  if (usual) {
    if (there) kept.erase(at);
    return;
  }
  const auto found = there ? at : kept.insert(at, which);
  found->value = value;
}

void forget_decisions() {
  deciding = false;
  replaying = false;
  kept.clear();
  given.clear();
  made = 0;
}

}  // namespace kb::emu

#define KB_EMU_EXPORT extern "C" __attribute__((visibility("default")))

// For the launches to come, until kb_emu_configure: keep what is drawn.
KB_EMU_EXPORT void kb_emu_keep_decisions() {
  kb::emu::forget_decisions();
  kb::emu::deciding = true;
}

// Or take these, and the usual choice elsewhere.
KB_EMU_EXPORT void kb_emu_give_decisions(const kb::emu::Decision* decisions, uint64_t count) {
  kb::emu::forget_decisions();
  kb::emu::deciding = kb::emu::replaying = true;
  for (const kb::emu::Decision* one = decisions; one != decisions + count; ++one) {
    kb::emu::given[kb::emu::key_of(*one)] = one->value;
  }
}

// How many decisions were made, and up to `capacity` of those that were kept; their number.
KB_EMU_EXPORT uint64_t kb_emu_decisions(kb::emu::Decision* out, uint64_t capacity,
                                        uint64_t* decisions_made) {
  const uint64_t count = std::min<uint64_t>(kb::emu::kept.size(), capacity);
  std::copy_n(kb::emu::kept.begin(), count, out);
  *decisions_made = kb::emu::made;
  return kb::emu::kept.size();
}
