// Which assumptions launches have rested on, since kb_emu_configure.
#include "assumptions.hpp"

#include <atomic>

namespace kb::emu {

namespace {

// The reader's vocabulary.
constexpr const char* kNames[] = {
    "groups-cover-loads",  "copies-at-cta-scope", "dependent-stores",     "triggers-hand-on",
    "plain-meeting-loads", "reads-before-async",  "groups-of-warpgroups", "host-in-turn",
};
static_assert(std::size(kNames) == static_cast<size_t>(Assumption::kCount));

std::atomic<uint32_t> noted = 0;

}  // namespace

void assume(Assumption assumption) {
  const uint32_t bit = 1u << static_cast<uint32_t>(assumption);
  if ((noted.load(std::memory_order_relaxed) & bit) == 0) noted |= bit;
}

void forget_assumptions() {
  noted = 0;
}

std::string assumptions_json() {
  std::string out = "[";
  for (uint32_t i = 0; i < std::size(kNames); ++i) {
    if ((noted >> i & 1) == 0) continue;
    if (out.size() > 1) out += ",";
    out += "\"" + std::string(kNames[i]) + "\"";
  }
  return out + "]";
}

}  // namespace kb::emu
