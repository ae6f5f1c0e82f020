// Warps: PTX ISA 9.1, 9.7.13 (elect, vote, redux, bar.warp) and 9.7.9 (shfl). Collective
// instructions meet in `collective`: whoever arrives last does what all asked for.
#include <algorithm>
#include <bit>
#include <cstring>

#include "api_core.hpp"
#include "api_ptx.hpp"
#include "findings.hpp"
#include "runner.hpp"
#include "timing.hpp"

namespace kb::emu {

namespace {

// Lanes that have exited, or that the CTA's last warp does not have.
uint32_t gone_lanes(const Warp& warp) {
  return ~all_lanes(warp) | warp.exited;
}

}  // namespace

// PTX: 9.7.13, .sync with a member mask: each thread waits until all non-exited members execute the
// same instruction with the same mask.
// Lanes gather by their member mask; the first sets what is executed, the last runs `body` for all.
// Masks that overlap wait for each other: a hang.
// Stricter: in steps of the ptx layer exited lanes are waited for, which is a hang; PTX excuses
// them from the instructions that take a mask.
uint64_t collective(const char* what, uint32_t members, uint64_t value, Pc pc,
                    Body<Collective&> body, bool excuses) {
  Thread& thread = self();
  Warp& warp = *thread.warp;
  const uint32_t lane = thread.lane;
  if (excuses) members &= ~gone_lanes(warp);
  if ((members >> lane & 1) == 0) {
    fail({.kind = Class::kDivergence,
          .pc = pc,
          .text = std::string("lane ") + std::to_string(lane) + " executes " + what +
                  " without being among its members"});
  }
  Collective* mine = nullptr;
  for (Collective& each : warp.collectives) {
    if (each.members == members) mine = &each;
  }
  if (mine == nullptr) {
    warp.collectives.emplace_back();
    mine = &warp.collectives.back();
    mine->members = members;
  }
  if (mine->arrived == 0) {
    mine->what = what;
    mine->pc = pc;
    mine->excuses = excuses;
  } else if (mine->what != what && std::strcmp(mine->what, what) != 0) {
    fail({.kind = Class::kDivergence,
          .pc = pc,
          .other_pc = mine->pc,
          .text = std::string("lanes of one warp execute ") + what + " and " + mine->what +
                  " at the same time"});
  }
  // The generation, and not `arrived`, is what the others wait for: a lane that is fast may be back
  // for the next one before a slow lane has looked.
  mine->arrived |= 1u << lane;
  mine->value[lane] = value;
  const uint32_t generation = mine->generation;
  if (mine->arrived != members) {
    wait_until_woken(Wait::Kind::kWarp, pc, members, 0, [mine, generation] {
      return mine->generation != generation || mine->arrived == mine->members;
    });
  } else {
    warp.wake(members);
  }
  if (mine->generation == generation) {
    body(*mine);
    mine->arrived = 0;
    ++mine->generation;
  }
  return mine->result[lane];
}

void excuse_from_collectives(const Thread& thread) {
  for (Collective& each : thread.warp->collectives) {
    if (each.excuses && each.arrived != 0) each.members &= ~(1u << thread.lane);
  }
  thread.warp->wake();
}

void meet_aligned(Warp& warp) {
  if (!checking() || !runs_ptx()) return;
  // Components of lanes are in a row.
  uint32_t own[kWarpSize] = {};
  const uint32_t first = warp.threads[0].component;
  for (uint32_t lane = 0; lane < warp.count; ++lane) {
    own[lane] = warp.threads[lane].knows.seen.at[first + lane]++;
  }
  for (uint32_t lane = 0; lane < warp.count; ++lane) {
    Knowledge& knows = warp.threads[lane].knows;
    knows.unfenced.at.resize(knows.seen.at.size());
    uint32_t* const epochs = &knows.unfenced.at[first];
    for (uint32_t i = 0; i < warp.count; ++i) epochs[i] = std::max(epochs[i], own[i]);
  }
}

// PTX: .sync.aligned: all threads of the warp execute the same instruction; in divergent code that
// is undefined, here a hang or kDivergence.
void warp_collective(const char* what, Pc pc, Body<> body) {
  collective(what, all_lanes(*self().warp), 0, pc, [&body](Collective&) {
    body();
    meet_aligned(*self().warp);
  });
}

uint32_t thread_index() {
  return self().index;
}
CtaIndex cta_index() {
  return self().cta->index;
}
CtaIndex cta_count() {
  return self().cta->cluster->launch->grid;
}

namespace {

// Which lane is elected is the implementation's choice, and the same one for a mask each time: an
// H200 takes the lowest. In half of the checker's schedules each mask has another.
uint32_t elected_lane(uint32_t members) {
  if (!checking() || options().elect_lowest != 0) {
    return static_cast<uint32_t>(std::countr_zero(members));
  }
  uint64_t state = options().seed * 0x9e3779b97f4a7c15u;
  const bool another = split_mix(state) % 2 != 0;
  state += members;
  const auto lanes = static_cast<uint32_t>(std::popcount(members));
  auto skipped = another ? static_cast<uint32_t>(split_mix(state) % lanes) : 0;
  if (deciding) skipped = decide({.who = kElected, .number = members}, skipped, 0, lanes);
  if (skipped > 0) note_another_elected();
  for (; skipped > 0; --skipped) members &= members - 1;
  return static_cast<uint32_t>(std::countr_zero(members));
}

uint32_t elect(uint32_t members, Pc pc) {
  interleave();
  return static_cast<uint32_t>(collective("elect.sync", members, 0, pc, [](Collective& all) {
    const uint32_t elected = elected_lane(all.members);
    for (uint32_t lane = 0; lane < kWarpSize; ++lane) all.result[lane] = elected;
    all.result[elected] += kWarpSize;
  }));
}

}  // namespace

// PTX: elect.sync (9.7.13): one lane of the mask, the same one each time.
uint32_t elect_sync(uint32_t members) {
  const Pc pc = KB_EMU_PC;
  return elect(members, pc) / kWarpSize;
}
// PTX: elect.sync d|p (9.7.13): with the elected lane's number.
uint32_t elected_by(uint32_t members) {
  const Pc pc = KB_EMU_PC;
  return elect(members, pc);
}

// PTX: activemask (9.7.13): the lanes that execute it together, which no schedule has to keep so.
// As GPUs do, lanes are waited for that nothing has led elsewhere (`together`); of others half of
// the checker's are alone.
uint32_t active_mask(bool together) {
  constexpr uint32_t kPatience = 32;  // in rounds of the others
  const Pc pc = KB_EMU_PC;
  Thread& thread = self();
  Warp& warp = *thread.warp;
  const uint32_t alone = 1u << thread.lane;
  if (checking() && !together && one_in(2)) return alone;
  const auto here = [pc](const Collective& each) { return each.pc == pc; };
  auto found = std::find_if(warp.gathered.begin(), warp.gathered.end(), here);
  if (found == warp.gathered.end()) {
    found = warp.gathered.emplace(found);
    found->pc = pc;
  }
  Collective& mine = *found;
  mine.arrived |= alone;
  const uint32_t generation = mine.generation;
  for (uint32_t i = 0; i < kPatience && mine.generation == generation; ++i) {
    if ((mine.arrived | gone_lanes(warp)) == ~0u) break;
    suspend({.kind = Wait::Kind::kYield});
  }
  if (mine.generation == generation) {
    for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
      if (mine.arrived >> lane & 1) mine.result[lane] = mine.arrived;
    }
    mine.arrived = 0;
    ++mine.generation;
  }
  return static_cast<uint32_t>(mine.result[thread.lane]);
}

// PTX: bar.warp.sync membermask (9.7.13).
// Every member knows afterwards what any knew before: memory ordering among the participating
// threads.
void bar_warp_sync(uint32_t members) {
  const Pc pc = KB_EMU_PC;
  interleave();
  collective(
      "bar.warp.sync", members, 0, pc,
      [](Collective& all) {
        if (!checking()) return;
        Knowledge together;
        Warp& warp = *self().warp;
        for (uint32_t lane = 0; lane < warp.count; ++lane) {
          if (all.members >> lane & 1) together.join(warp.threads[lane].knows);
        }
        for (uint32_t lane = 0; lane < warp.count; ++lane) {
          if ((all.members >> lane & 1) == 0) continue;
          Thread& thread = warp.threads[lane];
          thread.knows = together;
          ++thread.knows.seen.at[thread.component];
        }
      },
      runs_ptx());
}

// PTX: shfl.sync.{bfly,idx,up}.b32 (9.7.9), with the whole warp as the segment (c = 0x1f or 0).
// shfl.sync: a source lane outside the segment keeps its own value; one that is no member is
// undefined.
// Not modelled: segments narrower than a warp, .down, the predicate result.
// PTX: a value is exchanged, memory is not ordered.
uint32_t shfl(Shuffle mode, uint32_t value, uint32_t operand, uint32_t members) {
  const Pc pc = KB_EMU_PC;
  timed(Op::kShuffle, pc);
  interleave();
  const uint64_t mine = uint64_t{operand} << 32 | value;
  const uint64_t got = collective(
      "shfl.sync", members, mine, pc,
      [mode](Collective& all) {
        for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
          if ((all.members >> lane & 1) == 0) continue;
          const auto operand = static_cast<uint32_t>(all.value[lane] >> 32);
          uint32_t source = lane;
          if (mode == Shuffle::kXor) source = lane ^ operand;
          if (mode == Shuffle::kIndex) source = operand % kWarpSize;
          if (mode == Shuffle::kUp && operand <= lane) source = lane - operand;
          if (source >= kWarpSize) source = lane;
          if ((all.members >> source & 1) == 0) {
            fail({.kind = Class::kDivergence,
                  .pc = all.pc,
                  .text = "shfl.sync reads lane " + std::to_string(source) +
                          ", which is not among its members"});
          }
          all.result[lane] = static_cast<uint32_t>(all.value[source]);
        }
      },
      runs_ptx());
  return static_cast<uint32_t>(got);
}

namespace {

// vote and redux: one value from all members, to all of them.
uint32_t reduce(const char* what, uint32_t value, uint32_t members, Pc pc,
                uint32_t (*combine)(uint32_t, uint32_t)) {
  timed(Op::kShuffle, pc);
  interleave();
  return static_cast<uint32_t>(collective(
      what, members, value, pc,
      [combine](Collective& all) {
        uint32_t total = 0;
        for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
          if (all.members >> lane & 1)
            total = combine(total, static_cast<uint32_t>(all.value[lane]));
        }
        for (uint64_t& result : all.result) result = total;
      },
      runs_ptx()));
}

}  // namespace

// PTX: vote.sync.ballot.b32 (9.7.13): lanes that are no members have a zero bit.
// vote.sync.ballot.
uint32_t vote_ballot(bool predicate, uint32_t members) {
  const Pc pc = KB_EMU_PC;
  const uint32_t mine = predicate ? 1u << self().lane : 0;
  return reduce("vote.sync", mine, members, pc, [](uint32_t a, uint32_t b) { return a | b; });
}

// PTX: redux.sync.max.u32 (9.7.13).
uint32_t redux_max(uint32_t value, uint32_t members) {
  const Pc pc = KB_EMU_PC;
  return reduce("redux.sync.max", value, members, pc,
                [](uint32_t a, uint32_t b) { return a > b ? a : b; });
}

// PTX: redux.sync.add.u32 (9.7.13); wraps.
uint32_t redux_add(uint32_t value, uint32_t members) {
  const Pc pc = KB_EMU_PC;
  return reduce("redux.sync.add", value, members, pc, [](uint32_t a, uint32_t b) { return a + b; });
}

namespace {

// Of a thread when its kernel starts, as ptxas allocates them; 0 if nobody has said.
uint32_t registers_at_launch = 0;

// CUDA programming guide, compute capabilities: an SM has 65,536, and a warp takes units of 256. A
// CTA of a kernel whose registers nobody knows, as of steps, has no more than all of them.
uint32_t launched_with(const Cta& cta) {
  constexpr uint32_t kOfSm = 65536, kUnit = 8, kMost = 255;
  if (registers_at_launch != 0) return registers_at_launch;
  const uint32_t most = kOfSm / (static_cast<uint32_t>(cta.warps.size()) * kWarpSize);
  return std::min(most / kUnit * kUnit, kMost);
}

uint32_t registers_of(const Warp& warp) {
  return warp.registers != 0 ? warp.registers : launched_with(*warp.cta);
}

// Assumption: registers of warps that have exited are in the pool again.
int64_t registers_free(const Cta& cta) {
  int64_t free = int64_t{launched_with(cta)} * static_cast<int64_t>(cta.warps.size());
  for (const Warp& warp : cta.warps) {
    const bool live = std::any_of(warp.threads, warp.threads + warp.count,
                                  [](const Thread& each) { return !each.exited; });
    if (live) free -= registers_of(warp);
  }
  return free * kWarpSize;
}

// What all lanes of a warp do. In code that some of them skip PTX leaves it undefined: reported,
// and done by the others where those have exited, as GPUs do.
void by_all_lanes(const char* what, Pc pc, Body<> body) {
  const uint32_t lanes = all_lanes(*self().warp);
  collective(
      what, lanes, 0, pc,
      [&](Collective& all) {
        body();
        meet_aligned(*self().warp);
        if (all.members == lanes) return;
        report({.kind = Class::kDivergence,
                .pc = pc,
                .text = std::string(what) + ".sync.aligned by " +
                        std::to_string(std::popcount(all.members)) + " of " +
                        std::to_string(std::popcount(lanes)) +
                        " lanes of a warp; the others have exited"});
      },
      runs_ptx());
}

}  // namespace

// PTX: setmaxnreg.{inc,dec}.sync.aligned.u32 (9.7.19): .dec gives registers back to the pool of the
// CTA, .inc blocks until enough are there. The pool has what the CTA was launched with.
void setmaxnreg(uint32_t count, bool increase) {
  const Pc pc = KB_EMU_PC;
  Warp& warp = *self().warp;
  if (!checking()) {
    by_all_lanes("setmaxnreg", pc, [] {});
    return;
  }
  if (increase && warp.registers != count) {
    const Cta& cta = *warp.cta;
    const auto fits = [&] {
      const int64_t more = (int64_t{count} - registers_of(warp)) * kWarpSize;
      return warp.registers == count || more <= registers_free(cta);
    };
    wait_until(Wait::Kind::kRegisters, pc, count, static_cast<uint64_t>(registers_free(cta)), fits);
    warp.registers = count;  // by the first of its lanes
  }
  by_all_lanes("setmaxnreg", pc, [&] { warp.registers = count; });
}

}  // namespace kb::emu

// What the loader calls; see kernelbench/ptx/launcher.py.
extern "C" __attribute__((visibility("default"))) void kb_emu_registers(uint32_t of_a_thread) {
  kb::emu::registers_at_launch = of_a_thread;
}
