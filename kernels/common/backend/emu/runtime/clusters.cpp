// Clusters and distributed shared memory: PTX ISA 9.1, 9.7.13 (barrier.cluster) and 9.7.9 (mapa,
// ld, st and st.async to shared::cluster).
#include <algorithm>
#include <cstring>

#include "api_core.hpp"
#include "api_ptx.hpp"
#include "core.hpp"
#include "timing.hpp"
#include "tma_issue.hpp"

namespace kb::emu {

// PTX: %cluster_ctarank, %cluster_nctarank, %clusterid (10).
uint32_t cluster_ctarank() {
  return self().cta->rank;
}
uint32_t cluster_nctarank() {
  return static_cast<uint32_t>(self().cta->cluster->ctas.size());
}
uint32_t clusterid_x() {
  return self().cta->index.x / cluster_extent().x;
}
// PTX: %cluster_nctaid (10).
CtaIndex cluster_extent() {
  return self().cta->cluster->launch->extent;
}

// PTX: %clusterid, %cluster_ctarank (10): both count along x first, then along y and z.
CtaIndex Launch::cta_index(uint32_t cluster_id, uint32_t rank) const {
  cluster_id -= first_cluster;
  const uint32_t columns = grid.x / extent.x, rows = grid.y / extent.y;
  return {cluster_id % columns * extent.x + rank % extent.x,
          cluster_id / columns % rows * extent.y + rank / extent.x % extent.y,
          cluster_id / columns / rows * extent.z + rank / extent.x / extent.y};
}

namespace {

// PTX: 8.8, release pattern: a fence and a relaxed operation behind it; 9.7.16.6:
// tcgen05.fence::before_thread_sync orders tcgen05 operations with whatever orders execution.
// What a relaxed arrival hands on: what the thread's last fence that reaches the cluster covers,
// and the tensor pipes' operations that are over; in translated PTX for want of fences other
// asynchronous ones, too.
void hand_on_relaxed(Knowledge& object) {
  if (!checking()) return;
  const Thread& thread = self();
  const Cluster& cluster = *thread.cta->cluster;
  const Cta& first = cluster.ctas[0];
  const auto join = [&](const Abroad::Pointer& fenced) {
    const Clock* own = fenced == nullptr ? nullptr : fenced->clock(cluster.id);
    if (own != nullptr) object.seen.join(*own);
  };
  join(thread.fenced);
  if (thread.narrow_scope != Scope::kCta) join(thread.fenced_narrowly);
  object.published.join(thread.knows.published);
  const uint32_t pipes = pipe_component(first.warps[0], first, Pipe::kTensor);
  object.seen.join(thread.knows.seen, pipes, cluster.components - kCopySlots);
  if (!runs_ptx()) return;
  object.unfenced.join(thread.knows.seen, pipes, cluster.components);
  object.unfenced.join(thread.knows.unfenced, pipes, cluster.components);
}

}  // namespace

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
  if (release) {
    release_to(barrier.arriving);
  } else {
    hand_on_relaxed(barrier.arriving);
  }
  ++barrier.arrived;
  timed(Op::kClusterArrive, pc, thread.cta->cluster->id, thread.cluster_arrivals);
}

namespace {

// PTX: 9.7.13, barrier.cluster.wait: all non-exited threads of the cluster have arrived. The
// arrival of a thread that has exited since stands for nobody else's.
bool all_have_arrived(const Cluster& cluster) {
  const ClusterBarrier& barrier = cluster.barrier;
  if (barrier.arrived < cluster.live_threads) return false;
  return std::all_of(cluster.ctas.begin(), cluster.ctas.end(), [&barrier](const Cta& cta) {
    return std::all_of(cta.threads.begin(), cta.threads.end(), [&barrier](const Thread& thread) {
      return thread.exited || thread.cluster_arrivals > barrier.generation;
    });
  });
}

}  // namespace

// PTX: barrier.cluster.wait{.acquire} (9.7.13): all non-exited threads of the cluster.
// Whoever finds it complete begins the next generation.
void barrier_cluster_wait() {
  const Pc pc = KB_EMU_PC;
  interleave();
  Thread& thread = self();
  Cluster& cluster = *thread.cta->cluster;
  ClusterBarrier& barrier = cluster.barrier;
  // It waits for all threads that have not exited, itself among them.
  if (thread.cluster_arrivals == thread.cluster_waits) {
    fail({.kind = Class::kOrder,
          .pc = pc,
          .text = std::string("barrier.cluster.wait without barrier.cluster.arrive") +
                  (thread.cluster_waits > 0 ? " since the last wait" : "")});
  }
  const uint64_t target = thread.cluster_arrivals;
  wait_until(Wait::Kind::kCluster, pc, 0, target, [&cluster, &barrier, target] {
    if (barrier.generation < target && all_have_arrived(cluster)) {
      barrier.arrived = 0;
      ++barrier.generation;
      barrier.completed = std::move(barrier.arriving);
      barrier.arriving = {};
    }
    return barrier.generation >= target;
  });
  thread.cluster_waits = target;
  timed(Op::kClusterWait, pc, cluster.id, target);
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

namespace {

// A store or, with an operation, a reduction that completes on an mbarrier beside its destination.
void store_async(uint32_t address, const void* values, uint32_t bytes, uint32_t bar,
                 const BulkReduction& reduction, Pc pc, const char* what) {
  interleave();
  const bool reduces = reduction.operation != BulkOperation::kCopy;
  const SharedPlace at = shared_place(address, pc, what);
  const SharedPlace bar_at = shared_place(bar, pc, what);
  check_aligned(at.offset, bytes, pc, what, "a destination");
  if (bar_at.cta != at.cta) {
    fail({.kind = Class::kDescriptor,
          .pc = pc,
          .shared_offset = at.offset,
          .text = std::string(what) + ": the mbarrier lies in another CTA than the destination"});
  }
  Barrier& barrier = at.cta->barrier(bar_at.offset, pc, at.cta != self().cta);
  AsyncActor actor = copy_actor(pc, what);
  actor.actor.async = !reduces;
  actor.actor.atomic = reduces;
  if (reduces && checking()) {
    at.cta->shared_shadow->note_unwritten(at.offset / 4, actor.get());
  }
  shared_write(*at.cta, at.offset, bytes, actor.get());
  barrier.bytes_in_flight += bytes;
  const auto* first = static_cast<const std::byte*>(values);
  const bool afar = at.cta != self().cta;
  submit(pc, [at, given = std::vector<std::byte>(first, first + bytes), &barrier, actor, pc, afar,
              reduction, reduces]() mutable {
    if (reduces) {
      reduce_into(at.cta->shared + at.offset, given.data(), given.size(), reduction);
    } else {
      std::memcpy(at.cta->shared + at.offset, given.data(), given.size());
    }
    barrier.bytes_in_flight -= given.size();
    // As an arrival of another CTA: a wait at scope cta takes nothing from it.
    if (afar && checking()) barrier.arriving_afar.join(actor.knows);
    const auto count = static_cast<uint32_t>(given.size());
    barrier_complete_tx(barrier, count, afar ? nullptr : &actor.knows, pc);
  });
}

}  // namespace

// PTX: st.async.weak.shared::cluster.mbarrier::complete_tx::bytes (9.7.9), of 4, 8 or 16 bytes;
// complete-tx releases at scope .cluster. A weak store that completes on an mbarrier beside its
// destination, by the async mechanism. Assumption: it acts through the async proxy, as other
// asynchronous copies do; PTX calls it an asynchronous operation and names no proxy.
void st_async_shared_cluster(uint32_t address, const void* values, uint32_t bytes, uint32_t bar) {
  store_async(address, values, bytes, bar, {}, KB_EMU_PC, "st.async");
}

// PTX: red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes (9.7.13.8): relaxed
// at scope .cluster. Assumption: it acts through the generic proxy, as other reductions do, so
// that ordinary stores may set what it adds to; PTX names no proxy.
void red_async_shared_cluster(uint32_t address, const void* value, const BulkReduction& reduction,
                              uint32_t bar) {
  const bool wide =
      reduction.element == BulkElement::kU64 || reduction.element == BulkElement::kS64;
  store_async(address, value, wide ? 8 : 4, bar, reduction, KB_EMU_PC, "red.async");
}

}  // namespace kb::emu
