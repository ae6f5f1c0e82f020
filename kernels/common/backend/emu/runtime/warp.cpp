// Warps, named barriers, clusters and distributed shared memory: PTX ISA 9.1, 9.7.13 (bar, elect,
// vote, redux, fence, barrier.cluster) and 9.7.9 (shfl, mapa, st.async). Collective instructions
// meet in `collective`: whoever arrives last does what all asked for.
#include <bit>
#include <cstring>

#include "api_core.hpp"
#include "runner.hpp"

namespace kb::emu {

// PTX: 9.7.13, .sync with a member mask: each thread waits until all non-exited members execute the
// same instruction with the same mask.
// Lanes gather by their member mask; the first sets what is executed, the last runs `body` for all.
// Masks that overlap wait for each other: a hang.
// Stricter: exited lanes are waited for, which is a hang; PTX excuses them from some of the
// instructions.
uint64_t collective(const char* what, uint32_t members, uint64_t value, Pc pc,
                    const std::function<void(Collective&)>& body) {
  Thread& thread = self();
  Warp& warp = *thread.warp;
  const uint32_t lane = thread.lane;
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
  if (mine->arrived == members) {
    body(*mine);
    mine->arrived = 0;
    ++mine->generation;
  } else {
    const uint32_t generation = mine->generation;
    wait_until(Wait::Kind::kWarp, pc, members, 0,
               [mine, generation] { return mine->generation != generation; });
  }
  return mine->result[lane];
}

// PTX: .sync.aligned: all threads of the warp execute the same instruction; in divergent code that
// is undefined, here a hang or kDivergence.
void warp_collective(const char* what, Pc pc, const std::function<void()>& body) {
  const Warp& warp = *self().warp;
  const uint32_t members = warp.count == kWarpSize ? ~0u : (1u << warp.count) - 1;
  collective(what, members, 0, pc, [&body](Collective&) { body(); });
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
  if (!checking()) return static_cast<uint32_t>(std::countr_zero(members));
  uint64_t state = options().seed * 0x9e3779b97f4a7c15u;
  const bool another = split_mix(state) % 2 != 0;
  state += members;
  const auto lanes = static_cast<uint32_t>(std::popcount(members));
  auto skipped = another ? static_cast<uint32_t>(split_mix(state) % lanes) : 0;
  if (deciding) skipped = decide({.who = kElected, .number = members}, skipped, 0, lanes);
  for (; skipped > 0; --skipped) members &= members - 1;
  return static_cast<uint32_t>(std::countr_zero(members));
}

}  // namespace

// PTX: elect.sync (9.7.13).
// elect.sync: any one lane of the mask.
// Assumption: a kernel that works with the lowest lane works with any: other choices are not tried.
uint32_t elect_sync(uint32_t members) {
  const Pc pc = KB_EMU_PC;
  interleave();
  return static_cast<uint32_t>(collective("elect.sync", members, 0, pc, [](Collective& all) {
    for (uint32_t lane = 0; lane < kWarpSize; ++lane) all.result[lane] = 0;
    all.result[elected_lane(all.members)] = 1;
  }));
}

// PTX: bar.warp.sync membermask (9.7.13).
// Every member knows afterwards what any knew before: memory ordering among the participating
// threads.
void bar_warp_sync(uint32_t members) {
  const Pc pc = KB_EMU_PC;
  interleave();
  collective("bar.warp.sync", members, 0, pc, [](Collective& all) {
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
  });
}

// PTX: shfl.sync.{bfly,idx,up}.b32 (9.7.9), with the whole warp as the segment (c = 0x1f or 0).
// shfl.sync: a source lane outside the segment keeps its own value; one that is no member is
// undefined.
// Not modelled: segments narrower than a warp, .down, the predicate result.
// PTX: a value is exchanged, memory is not ordered.
uint32_t shfl(Shuffle mode, uint32_t value, uint32_t operand, uint32_t members) {
  const Pc pc = KB_EMU_PC;
  interleave();
  const uint64_t mine = uint64_t{operand} << 32 | value;
  const uint64_t got = collective("shfl.sync", members, mine, pc, [mode](Collective& all) {
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
  });
  return static_cast<uint32_t>(got);
}

namespace {

// vote and redux: one value from all members, to all of them.
uint32_t reduce(const char* what, uint32_t value, uint32_t members, Pc pc,
                uint32_t (*combine)(uint32_t, uint32_t)) {
  interleave();
  return static_cast<uint32_t>(collective(what, members, value, pc, [combine](Collective& all) {
    uint32_t total = 0;
    for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
      if (all.members >> lane & 1) total = combine(total, static_cast<uint32_t>(all.value[lane]));
    }
    for (uint64_t& result : all.result) result = total;
  }));
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

// PTX: setmaxnreg.{inc,dec}.sync.aligned.u32 (9.7.19).
// Registers are not modelled; that all lanes execute it is.
// Not modelled: the register file. An .inc that waits for registers that nobody gives back hangs on
// hardware only.
void setmaxnreg(uint32_t, bool) {
  const Pc pc = KB_EMU_PC;
  warp_collective("setmaxnreg", pc, [] {});
}

// ---- named barriers --------------------------------------------------------------------------

namespace {

// PTX: barrier.cta / bar (9.7.13): sixteen a CTA; the count is a multiple of the warp size.
// bar.sync and bar.arrive. The first to come says how many are expected; the generation counts
// completions, so that a barrier that is used again at once loses nobody.
// PTX: the .aligned form is for whole warps. Here every thread arrives by itself, so that a
// bar.sync in divergent code leaves the others waiting.
// Assumption: release and acquire at scope .cta among all that took part, those that only arrived
// included as releasers.
void named_barrier(uint32_t number, uint32_t threads, bool waits, Pc pc) {
  interleave();
  Thread& thread = self();
  if (number > 15 || threads == 0 || threads % kWarpSize != 0 ||
      threads > thread.cta->threads.size()) {
    fail({.kind = Class::kNamedBarrier,
          .pc = pc,
          .text = "barrier " + std::to_string(number) + " for " + std::to_string(threads) +
                  " threads: barriers are 0 … 15, counts multiples of 32 up to the CTA's threads"});
  }
  NamedBarrier& barrier = thread.cta->named[number];
  if (barrier.arrived == 0) {
    barrier.expected = threads;
    barrier.pc = pc;
  } else if (barrier.expected != threads) {
    fail({.kind = Class::kNamedBarrier,
          .pc = pc,
          .other_pc = barrier.pc,
          .text = "participants of barrier " + std::to_string(number) +
                  " disagree: " + std::to_string(threads) + " threads here, " +
                  std::to_string(barrier.expected) + " there"});
  }
  // An arrival releases, whether it waits or not; whoever waits acquires what all have released.
  release_to(barrier.arriving);
  const uint64_t generation = barrier.generation;
  if (++barrier.arrived == barrier.expected) {
    barrier.arrived = 0;
    ++barrier.generation;
    if (checking()) {
      barrier.completed = std::move(barrier.arriving);
      barrier.arriving = {};
    }
  } else if (waits) {
    wait_until(Wait::Kind::kNamedBarrier, pc, number, generation,
               [&barrier, generation] { return barrier.generation != generation; });
  }
  // A later generation cannot have completed without this thread, unless it only arrived.
  if (waits) acquire_from(barrier.completed);
}

}  // namespace

// PTX: bar.sync 0 (9.7.13), all threads of the CTA.
// bar.sync 0, all threads of the CTA.
void bar_sync_all() {
  const Pc pc = KB_EMU_PC;
  named_barrier(0, static_cast<uint32_t>(self().cta->threads.size()), true, pc);
}

// PTX: bar.sync a, b (9.7.13): arrives and waits.
void bar_sync(uint32_t barrier, uint32_t threads) {
  const Pc pc = KB_EMU_PC;
  named_barrier(barrier, threads, true, pc);
}

// PTX: bar.arrive a, b (9.7.13): arrives without waiting; the thread acquires nothing.
void bar_arrive(uint32_t barrier, uint32_t threads) {
  const Pc pc = KB_EMU_PC;
  named_barrier(barrier, threads, false, pc);
}

// ---- fences ----------------------------------------------------------------------------------

// PTX: fence.proxy.async{.shared::cta,.global} (9.7.13): between the generic and the async proxy,
// in both directions, for the executing thread. What the thread knows of generic writes, its own
// and others', is from now on published to the async proxy. Assumption: it publishes other threads'
// writes that the fencing thread has observed, so that one thread can fence for a CTA after a
// barrier. That is how everybody uses it; PTX's text has it through causality order. Not modelled:
// .global: copies read global memory as it is.
void fence_proxy_async(bool shared, bool) {
  interleave();
  if (!checking() || !shared) return;
  Knowledge& knows = self().knows;
  // Both directions: async writes that a barrier has made known are seen by ordinary loads without
  // this fence.
  knows.published.join(knows.seen);
  // Its later writes are not published.
  ++knows.seen.at[self().component];
}

// ---- clusters --------------------------------------------------------------------------------

// PTX: %cluster_ctarank, %cluster_nctarank, %clusterid (10).
uint32_t cluster_ctarank() {
  return self().cta->rank;
}
uint32_t cluster_nctarank() {
  return static_cast<uint32_t>(self().cta->cluster->ctas.size());
}
uint32_t clusterid_x() {
  return self().cta->index.x / cluster_nctarank();
}

// PTX: barrier.cluster.arrive{.release,.relaxed}.aligned (9.7.13).
// One generation at a time: a second arrival needs the wait for the first.
void barrier_cluster_arrive(bool release) {
  const Pc pc = KB_EMU_PC;
  interleave();
  Thread& thread = self();
  ClusterBarrier& barrier = thread.cta->cluster->barrier;
  if (thread.cluster_arrivals > barrier.generation) {
    fail({.kind = Class::kOrder,
          .pc = pc,
          .text = "barrier.cluster.arrive twice without barrier.cluster.wait between"});
  }
  thread.cluster_arrivals = barrier.generation + 1;
  if (release) release_to(barrier.arriving);
  ++barrier.arrived;
}

// PTX: barrier.cluster.wait{.acquire} (9.7.13): all non-exited threads of the cluster.
// Complete when all threads that still run have arrived.
void barrier_cluster_wait() {
  const Pc pc = KB_EMU_PC;
  interleave();
  Thread& thread = self();
  Cluster& cluster = *thread.cta->cluster;
  ClusterBarrier& barrier = cluster.barrier;
  if (thread.cluster_arrivals == 0) {
    fail({.kind = Class::kOrder,
          .pc = pc,
          .text = "barrier.cluster.wait without barrier.cluster.arrive"});
  }
  // Whoever finds it complete begins the next generation.
  // Not modelled: an arrival of a thread that exits before the others have arrived stays counted,
  // in place of one that still runs.
  const uint64_t target = thread.cluster_arrivals;
  wait_until(Wait::Kind::kCluster, pc, 0, target, [&cluster, &barrier, target] {
    // Threads that have exited are not waited for.
    if (barrier.generation < target && barrier.arrived >= cluster.live_threads) {
      barrier.arrived = 0;
      ++barrier.generation;
      barrier.completed = std::move(barrier.arriving);
      barrier.arriving = {};
    }
    return barrier.generation >= target;
  });
  acquire_from(barrier.completed);
}

// PTX: mapa.shared::cluster.u32 (9.7.9). Whether the other CTA still runs is asked when the address
// is used.
// The same offset in the shared memory of another rank.
uint32_t mapa(const void* pointer, uint32_t rank) {
  const Pc pc = KB_EMU_PC;
  const SharedPlace at = shared_place(pointer, pc, "mapa");
  Cluster& cluster = *self().cta->cluster;
  if (rank >= cluster.ctas.size()) {
    fail({.kind = Class::kOutOfBounds,
          .pc = pc,
          .text = "mapa of rank " + std::to_string(rank) + " in a cluster of " +
                  std::to_string(cluster.ctas.size()) + " CTAs"});
  }
  return shared_address({&cluster.cta(rank), at.offset});
}

// PTX: st.shared::cluster.u32 (9.7.9), weak.
// An ordinary store to another CTA; shared_place refuses one that has exited.
// A CTA's shared memory exists from its start to its exit; peers have to make sure of both by
// barrier.cluster.
void st_shared_cluster(uint32_t address, uint32_t value) {
  const Pc pc = KB_EMU_PC;
  interleave();
  const SharedPlace at = shared_place(address, pc, "st.shared::cluster");
  shared_write(*at.cta, at.offset, 4, generic_actor(pc, "a store"));
  std::memcpy(at.cta->shared + at.offset, &value, 4);
}

// PTX: ld.shared::cluster.u32 (9.7.9), weak.
uint32_t ld_shared_cluster(uint32_t address) {
  const Pc pc = KB_EMU_PC;
  interleave();
  const SharedPlace at = shared_place(address, pc, "ld.shared::cluster");
  shared_read(*at.cta, at.offset, 4, generic_actor(pc, "a load"));
  uint32_t value;
  std::memcpy(&value, at.cta->shared + at.offset, 4);
  return value;
}

// PTX: st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 (9.7.9).
// A weak store that completes on an mbarrier beside its destination, by the async mechanism.
// Assumption: it acts through the async proxy, as other asynchronous copies do; PTX calls it an
// asynchronous operation and names no proxy.
void st_async_shared_cluster(uint32_t address, uint32_t value, uint32_t bar) {
  const Pc pc = KB_EMU_PC;
  interleave();
  const SharedPlace at = shared_place(address, pc, "st.async");
  const SharedPlace bar_at = shared_place(bar, pc, "st.async");
  if (bar_at.cta != at.cta) {
    fail({.kind = Class::kDescriptor,
          .pc = pc,
          .shared_offset = at.offset,
          .text = "st.async: the mbarrier lies in another CTA than the destination"});
  }
  Barrier& barrier = at.cta->barrier(bar_at.offset, pc, at.cta != self().cta);
  AsyncActor actor = copy_actor(pc, "st.async");
  shared_write(*at.cta, at.offset, 4, actor.get());
  barrier.bytes_in_flight += 4;
  submit([at, value, &barrier, actor, pc]() mutable {
    std::memcpy(at.cta->shared + at.offset, &value, 4);
    barrier.bytes_in_flight -= 4;
    barrier_complete_tx(barrier, 4, &actor.knows, pc);
  });
}

}  // namespace kb::emu
