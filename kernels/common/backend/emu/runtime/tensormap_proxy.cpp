// What the tensormap proxy sees of maps that change (PTX ISA 9.1, 9.7.13).
//
// The proxy may keep what it has read of a map. A change is therefore a new version, which a thread
// sees only after it was released towards the proxy and that thread has acquired it. A copy that
// has not gets what its CTA's proxy last saw, and a finding. Copies capture their map at the issue:
// that a change comes too early is found by the clocks, in every schedule.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "assumptions.hpp"
#include "timing.hpp"
#include "tma_box.hpp"

namespace kb::emu {

namespace {

// PTX: fence.proxy.tensormap::generic (9.7.13): a unidirectional fence, release on the writer's
// side, acquire with the map's address on the reader's.
// The last change of a map in this launch.
struct Change {
  uint64_t version = 0;
  uint32_t cluster = 0;  // id of the one that changed it
  Pc pc = nullptr;
  bool by_fields = false;       // tensormap.replace on the map itself, not yet released
  std::vector<Event> releases;  // any of which an acquiring thread of the cluster must know
  // By other threads of a CTA, for those that are behind them.
  struct Acquire {
    const Cta* cta;
    Event event;
  };
  std::vector<Acquire> acquires;
};

// Clusters of all OS threads share the maps in global memory.
std::mutex changes_mutex;
std::unordered_map<const TensorMap*, Change> changes;
std::atomic<bool> any_change = false;
std::atomic<uint64_t> changes_launch = ~uint64_t{0};
uint64_t next_version = 0;

// The thread's own present.
Event now(const Thread& thread) {
  return {thread.component, thread.knows.seen.at[thread.component]};
}

bool knows(const Thread& thread, const Event& event) {
  return thread.knows.seen.covers(event.component, event.epoch);
}

// 0 for a map that it has acquired in no version.
uint64_t acquired_version(const Thread& thread, const TensorMap* map) {
  for (const AcquiredMap& acquired : thread.tma.acquired) {
    if (acquired.map == map) return acquired.version;
  }
  return 0;
}

// A copy has read its map when it is complete, or when its issuer's wait_group.read covers it.
// Assumption: see bulk_wait_group in tma_store.cpp.
bool knows_read(const Thread& thread, const MapReader& reader) {
  return knows(thread, reader.copy) ||
         (reader.waited != 0 && knows(thread, {reader.thread, reader.waited}));
}

// PTX: a write to a map that a copy in flight still reads is a data race between proxies, whatever
// fences follow.
// A map that `count` threads change together, while a copy may still read it: what one of them
// knows is enough.
// Not modelled: readers in other clusters; their clocks are their own.
void check_readers(const TensorMap* map, const Thread* changing, uint32_t count, Pc pc,
                   const char* what) {
  const auto known = [&](const MapReader& reader) {
    if (std::any_of(changing, changing + count,
                    [&](const Thread& thread) { return knows(thread, reader.copy); })) {
      return true;
    }
    const bool waited = std::any_of(changing, changing + count, [&](const Thread& thread) {
      return knows_read(thread, reader);
    });
    if (waited && reader.load) assume(Assumption::kGroupsCoverLoads);
    return waited;
  };
  for (Cta& cta : self().cta->cluster->ctas) {
    const auto found = cta.tma.readers.find(map);
    if (found == cta.tma.readers.end()) continue;
    for (const MapReader& reader : found->second) {
      if (known(reader)) continue;
      report({.kind = Class::kOverwrite,
              .pc = pc,
              .other_pc = reader.pc,
              .text = std::string(what) +
                      " changes a tensor map that an earlier copy may not have read yet: wait for "
                      "the copy, or commit a group and wait for it with .read"});
    }
    found->second.clear();
  }
}

// Records a change by the running thread or warp.
void record_change(const TensorMap* map, bool by_fields, std::vector<Event> releases, Pc pc) {
  const std::lock_guard lock(changes_mutex);
  Change& change = changes[map];
  change.version = ++next_version;
  change.cluster = self().cta->cluster->id;
  change.pc = pc;
  change.by_fields = by_fields;
  change.releases = std::move(releases);
  change.acquires.clear();
  any_change.store(true, std::memory_order_release);
}

// Version 0 if nothing has changed the map in this launch.
Change last_change(const TensorMap* map) {
  if (!any_change.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(changes_mutex);
  const auto found = changes.find(map);
  return found == changes.end() ? Change{} : found->second;
}

}  // namespace

// PTX: 8.6 and 9.7.13: accesses through different proxies need a proxy fence; for tensor maps that
// is release by who has changed it, a synchronization, and acquire by the thread that issues the
// copy.
// What a copy by the running thread finds: the map as it is if the proxy may see it, else as it
// was, with a finding.
// Assumption: a CTA's proxy keeps a map from its first use for the rest of the launch. Hardware
// evicts; a kernel that relies on that fails some day.
// Assumption: a map that nobody has changed in this launch needs no fence: the launch itself orders
// what came before.
TensorMap proxy_view(const TensorMap* map, Pc pc, const char* what) {
  const TensorMap content = *map;
  Thread& thread = self();
  auto& views = thread.cta->tma.views;
  const auto [view, first_use] = views.try_emplace(map, content);
  const Change change = last_change(map);
  // Ordinary stores leave no version; the bytes tell.
  const bool stale = std::memcmp(&view->second, &content, sizeof content) != 0;
  if (change.version == 0) {
    if (!stale) return content;
    report({.kind = Class::kTensorMapProxy,
            .pc = pc,
            .text = std::string(what) +
                    " with a tensor map that ordinary stores have changed since its last use, "
                    "without fence.proxy.tensormap::generic"});
    return view->second;
  }
  // PTX: 8.9.5: a proxy fence on the way from the one access to the other, whoever executes it.
  // Stricter: in another CTA it does not count, since each SM keeps maps of its own.
  const bool behind =
      std::any_of(change.acquires.begin(), change.acquires.end(), [&](const Change::Acquire& each) {
        return each.cta == thread.cta && knows(thread, each.event);
      });
  if (behind || acquired_version(thread, map) == change.version) {
    view->second = content;
    return content;
  }
  report({.kind = Class::kTensorMapProxy,
          .pc = pc,
          .other_pc = change.pc,
          .text = std::string(what) + " with a changed tensor map that " +
                  (change.by_fields
                       ? "was not released by fence.proxy.tensormap::generic.release"
                       : "its thread has not acquired by fence.proxy.tensormap::generic.acquire "
                         "after the change")});
  return view->second;
}

// Remembers a copy, until its end is known to all that may change the map.
void map_read_by(const TensorMap* map, Event copy, bool load, Pc pc) {
  Thread& thread = self();
  std::vector<MapReader>& readers = thread.cta->tma.readers[map];
  // Whoever knows of the new copy knows what its issuer knew.
  std::erase_if(readers, [&](const MapReader& reader) {
    return reader.load ? knows(thread, reader.copy) : knows_read(thread, reader);
  });
  readers.push_back({copy, thread.component, thread.tma.commits, 0, load, pc});
}

// wait_group.read covers the tensor map's bytes as well.
// Assumption: .read of a later group says so of every copy that the thread issued before the
// commit, loads included.
void map_reads_waited(uint32_t pending) {
  Thread& thread = self();
  for (auto& [map, readers] : thread.cta->tma.readers) {
    for (MapReader& reader : readers) {
      if (reader.thread != thread.component || reader.waited != 0) continue;
      if (reader.commits + pending < thread.tma.commits) reader.waited = now(thread).epoch;
    }
  }
}

// Runtime: kernels of one stream run one after another; what an earlier one wrote is visible
// through every proxy.
// Changes are kept for one launch: the next sees what is in memory.
void start_maps(uint64_t launch) {
  if (changes_launch.load(std::memory_order_acquire) == launch) return;
  const std::lock_guard lock(changes_mutex);
  if (changes_launch.load(std::memory_order_relaxed) == launch) return;
  changes.clear();
  any_change.store(false, std::memory_order_relaxed);
  changes_launch.store(launch, std::memory_order_release);
}

// tensormap.replace on a map in global memory: a version that still has to be released.
void map_replaced(const TensorMap* map, Pc pc) {
  check_readers(map, &self(), 1, pc, "tensormap.replace");
  record_change(map, true, {}, pc);
  std::vector<const TensorMap*>& unreleased = self().tma.unreleased;
  if (std::find(unreleased.begin(), unreleased.end(), map) == unreleased.end()) {
    unreleased.push_back(map);
  }
}

// PTX: tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
// (9.7.13): copies 128 bytes from shared to global memory and is a release fence towards the
// tensormap proxy, in all threads of the warp.
// Copies and releases in one: by the whole warp, each lane a share.
// Assumption: any lane's release is enough for an acquiring thread that is ordered behind that
// lane. The copy comes once all lanes are there: what another lane has written before is formal in
// translated PTX (Triton's descriptors), where PTX asks for a bar.warp.sync.
void tensormap_cp_fenceproxy(TensorMap* global_map, const TensorMap* shared_map) {
  const Pc pc = KB_EMU_PC;
  const char* what = "tensormap.cp_fenceproxy";
  interleave();
  timed(Op::kMapPublish, pc);
  check_map_alignment(global_map, pc, what);
  check_map_alignment(shared_map, pc, what);
  const SharedPlace source = shared_place(shared_map, pc, what);
  global_access(global_map, sizeof *global_map, true, pc, what);
  Thread& thread = self();
  Warp& warp = *thread.warp;
  const uint32_t members = warp.count == kWarpSize ? ~0u : (1u << warp.count) - 1;
  const auto value = reinterpret_cast<uint64_t>(global_map);
  collective(what, members, value, pc, [&](Collective& all) {
    for (uint32_t lane = 0; lane < warp.count; ++lane) {
      if (all.value[lane] == value) continue;
      fail({.kind = Class::kDivergence,
            .pc = pc,
            .text = std::string(what) + " with different maps in the lanes of a warp"});
    }
    if (checking()) {
      meet_aligned(warp);
      // Each lane copies its share, so that a lane that has not synchronized with the writer is
      // seen. 128 bytes by 32 lanes: four each.
      const uint32_t share = sizeof *shared_map / kWarpSize;
      for (uint32_t lane = 0; lane < warp.count; ++lane) {
        shared_read(*source.cta, source.offset + lane * share, share,
                    generic_actor(warp.threads[lane], pc, what));
      }
      meet_aligned(warp);
      check_readers(global_map, warp.threads, warp.count, pc, what);
      std::vector<Event> releases;
      for (uint32_t lane = 0; lane < warp.count; ++lane) {
        releases.push_back(now(warp.threads[lane]));
      }
      record_change(global_map, false, std::move(releases), pc);
    }
    std::memcpy(global_map, source.cta->shared + source.offset, sizeof *global_map);
  });
}

// PTX: fence.proxy.tensormap::generic.release.{cta,cluster,gpu,sys} (9.7.13).
// Not modelled: scopes; a release serves the whole GPU.
// Releases what the thread itself has replaced.
void fence_proxy_tensormap_release() {
  interleave();
  if (!checking()) return;
  Thread& thread = self();
  const std::lock_guard lock(changes_mutex);
  for (const TensorMap* map : thread.tma.unreleased) {
    Change& change = changes[map];
    change.by_fields = false;
    change.releases.push_back(now(thread));
  }
  thread.tma.unreleased.clear();
}

// PTX: fence.proxy.tensormap::generic.acquire.{cta,cluster,gpu,sys} [addr], 128 (9.7.13): size 128
// is the only one.
// Needs to be ordered after a release of the last change; else the thread keeps what it had.
// Not modelled: scopes. Between clusters the order in which they happened to run stands for a
// synchronization, so a missing one is not found there.
// PTX names no access to the address: of null it orders nothing (CUTLASS's grouped products for
// Hopper, in warps that store no tile), and a copy with that map is still wrong.
void fence_proxy_tensormap_acquire(const TensorMap* map) {
  const Pc pc = KB_EMU_PC;
  interleave();
  check_map_alignment(map, pc, "fence.proxy.tensormap::generic.acquire");
  timed(Op::kMapAcquire, pc);
  if (!checking() || map == nullptr) return;
  Thread& thread = self();
  const TensorMap present = *map;  // a wild address ends the launch: before anything is locked
  const std::lock_guard lock(changes_mutex);
  const auto found = changes.find(map);
  if (found == changes.end()) {
    if (written_in_launch(map, sizeof *map)) {
      report({.kind = Class::kTensorMapProxy,
              .pc = pc,
              .text = "fence.proxy.tensormap acquires a map that ordinary stores have changed "
                      "without a release towards the tensormap proxy"});
      return;
    }
    thread.cta->tma.views.insert_or_assign(map, present);
    return;
  }
  Change& change = found->second;
  if (change.by_fields) return;
  // Clocks are a cluster's own; towards other clusters the order in time has to do.
  const bool ordered = change.cluster != thread.cta->cluster->id ||
                       std::any_of(change.releases.begin(), change.releases.end(),
                                   [&](const Event& release) { return knows(thread, release); });
  if (!ordered || acquired_version(thread, map) == change.version) return;
  change.acquires.push_back({thread.cta, now(thread)});
  std::erase_if(thread.tma.acquired, [&](const AcquiredMap& old) { return old.map == map; });
  thread.tma.acquired.push_back({map, change.version});
}

}  // namespace kb::emu
