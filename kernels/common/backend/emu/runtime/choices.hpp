// What a schedule decides: who runs next, what completes, who gives way. The seed draws it; a
// launch can also keep what was drawn, or take it from a list, for schedules that are made shorter
// and replayed. Models nothing of PTX by itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kb::emu {

// One decision that is not the usual one; plain data, mirrored in Python. Decisions are counted
// apart for each of `who`, so that one less does not move those of others.
struct Decision {
  uint32_t launch = 0;   // since kb_emu_configure
  uint32_t cluster = 0;  // id; of a cooperative launch's scheduler: 0
  int32_t who = 0;       // a thread of the cluster, by component; or a Who
  uint32_t number = 0;
  uint32_t value = 0;
};
enum Who : int32_t {
  kScheduler = -1,     // the scheduler of the cluster
  kClusterOrder = -2,  // which cluster starts in place `number`; 0: whether others run beside it
  kElected = -3,       // the lane of the member mask `number`
};

// Whether decisions are kept or taken from a list; else the seed alone draws.
[[gnu::visibility("hidden")]] extern bool deciding;

// What is decided where the seed has drawn `drawn` and `usual` is the usual choice: `drawn`, kept
// if it is not usual; or what the list says, the usual choice if it says nothing.
uint32_t decide(const Decision& which, uint32_t drawn, uint32_t usual, uint32_t bound);
// How many are kept: the place of the next one.
size_t decisions_kept();
// How a decision turned out that was made when the next place was `place`: as this value would
// have, or as the usual choice.
void amend_decision(size_t place, const Decision& which, uint32_t value, bool usual);
void forget_decisions();

}  // namespace kb::emu
