// tcgen05.cp and tcgen05.commit, PTX ISA 9.1, 9.7.16.
#include "tcgen05.hpp"

#include <cstring>

#include "api_tensor.hpp"
#include "operand_tile.hpp"
#include "timing.hpp"

namespace kb::emu {

// PTX: 9.7.16: tensor and shared memory of the peer CTA are used in place; its exit frees both.
// Work in another CTA of the cluster needs that CTA to exist.
void check_alive(const Cta& cta, Pc pc, const char* what) {
  if (!cta.exited()) return;
  fail({.kind = Class::kExit,
        .pc = pc,
        .text = std::string(what) + " acts in CTA " + std::to_string(cta.rank) +
                " of the cluster, which has exited"});
}

// PTX: 9.7.16.6: mma, cp and commit of one thread execute in the order of their issue; towards
// everything else order comes from a commit's barrier together with
// tcgen05.fence::after_thread_sync.
// In the warp's tensor pipe, ordered by what tcgen05.fence has ordered: barriers alone do not order
// tcgen05 operations.
AsyncActor tensor_actor(Pc pc, const char* what) {
  if (checking()) {
    AsyncActor actor = pipe_actor(Pipe::kTensor, pc, what);
    order_by_fences(actor);
    return actor;
  }
  AsyncActor actor;
  actor.actor.pc = pc;
  actor.actor.what = what;
  return actor;
}

// ---- cp --------------------------------------------------------------------------------------

namespace {

constexpr uint32_t kScaleRows = 32;  // of one copy, 16 bytes each
constexpr uint32_t kCopyColumns = 4;

struct ScaleCopy {
  struct Place {
    Cta* to;
    Cta* from;
    StaleCells stale;
  };
  OperandTile source;
  uint32_t column;
  uint32_t count = 0;
  Place places[2] = {};

  void execute() const {
    for (uint32_t i = 0; i < count; ++i) {
      // Row i goes to lane i of each slab: four 32-bit columns hold its 16 bytes.
      uint8_t rows[kScaleRows][16];
      source.read(*places[i].from, kScaleRows, places[i].stale, rows[0]);
      TmemCells& cells = *places[i].to->tensor.cells;
      const bool times_four = broken(Fact::kCopyRowsTimesFour);
      for (uint32_t row = 0; row < kScaleRows; ++row) {
        for (uint32_t replica = 0; replica < 4; ++replica) {
          const uint32_t lane = times_four ? 4 * row + replica : row + 32 * replica;
          std::memcpy(&cells.at[lane][column], rows[row], sizeof rows[row]);
        }
      }
    }
  }
};

}  // namespace

// PTX: tcgen05.cp.cta_group::{1,2}.32x128b.warpx4 [taddr], s-desc (9.7.16): one thread; reads
// shared memory through the async proxy, by a matrix descriptor without swizzle, K-major.
// 32 rows of 16 bytes to four columns, the same in each of the four slabs of 32 lanes (.warpx4).
// Not modelled: the other shapes (128x256b, 4x256b, 128x128b, 64x128b) and the unpacking of 4- and
// 6-bit elements.
// Assumption: with cta_group::2 each CTA copies from its own shared memory to its own tensor memory
// at the same addresses; broken facts have the other readings.
// Stricter: the column is a multiple of four, the lane zero: where else the 16 bytes of a row would
// land is in no text.
void tcgen05_cp_32x128b_warpx4(uint32_t group, uint32_t tmem, uint64_t source) {
  const Pc pc = KB_EMU_PC;
  constexpr const char* kWhat = "tcgen05.cp";
  interleave();
  Thread& thread = self();
  Cta& cta = *thread.cta;
  check_one_lane(mix(tmem, source), pc, kWhat);
  Cta* peer = tensor_group(group, pc, kWhat);
  timed(Op::kTmemCopy, pc, 0, 0, 0, 0, true);
  // A commit by another lane would track nothing of this.
  thread.warp->tensor.issuers |= 1u << thread.lane;
  const TmemAddress address(tmem);
  if (address.lane != 0 || address.column % kCopyColumns != 0) {
    fail({.kind = Class::kAlignment,
          .pc = pc,
          .tmem_column = address.column,
          .text = std::string(kWhat) + " to lane " + std::to_string(address.lane) + ", column " +
                  std::to_string(address.column) + ": the lane is 0, the column a multiple of 4"});
  }
  ScaleCopy copy{.source = OperandTile::scales(source, pc, "tcgen05.cp's source"),
                 .column = address.column};
  Cta& leader = peer != nullptr && cta.rank % 2 != 0 ? *peer : cta;
  copy.places[copy.count++] = {&cta, broken(Fact::kPairCopyFromLeader) ? &leader : &cta, {}};
  if (peer != nullptr && !broken(Fact::kPairCopyIssuerOnly)) {
    copy.places[copy.count++] = {peer, broken(Fact::kPairCopyFromLeader) ? &leader : peer, {}};
  }
  AsyncActor actor = tensor_actor(pc, kWhat);
  for (uint32_t i = 0; i < copy.count; ++i) {
    ScaleCopy::Place& place = copy.places[i];
    check_alive(*place.to, pc, kWhat);
    tmem_columns(*place.to, address.column, kCopyColumns, pc, kWhat);
    copy.source.check(*place.from, 0, kScaleRows, actor.get(), place.stale);
    if (checking()) {
      place.to->tmem_shadow->write(tmem_cell(address.column, 0), kCopyColumns * kTmemSlabs,
                                   actor.get());
    }
  }
  start(pc, std::move(copy));
}

// ---- commit ----------------------------------------------------------------------------------

// PTX: tcgen05.commit.cta_group::{1,2}.mbarrier::arrive::one.shared::cluster.b64 (9.7.16), also
// with .multicast::cluster: makes the barrier track all prior asynchronous tcgen05 operations of
// the executing thread: an arrive-on with count 1 and release semantics once they are complete.
// Implies tcgen05.fence::before_thread_sync.
// Tracks what the executing thread has issued so far: arrives once on each barrier when all of it
// is complete.
// Stricter: with nothing issued the arrival comes at once, which PTX does not exclude; whoever
// waits for it then knows of no product, so it is reported.
// Assumption: the tracked operations are those of the warp's pipe, of whichever lane.
// Assumption: arrivals of one commit on several barriers come in any order, at any time after
// completion.
void tcgen05_commit(uint32_t group, void* bar, bool multicast, uint32_t mask) {
  const Pc pc = KB_EMU_PC;
  constexpr const char* kWhat = "tcgen05.commit";
  interleave();
  Thread& thread = self();
  const SharedPlace place = shared_place(bar, pc, kWhat);
  check_one_lane(mix(shared_address(place), mask), pc, kWhat);
  tensor_group(group, pc, kWhat);
  if ((thread.warp->tensor.issuers >> thread.lane & 1) == 0) {
    report({.kind = Class::kOrder,
            .pc = pc,
            .shared_offset = place.offset,
            .text = "tcgen05.commit by a thread that has issued no mma or cp: it tracks the "
                    "executing thread's operations only"});
  }
  Cluster& cluster = *thread.cta->cluster;
  struct Arrival {
    Cta* cta;
    Barrier* barrier;
    Knowledge knows;
    bool afar;

    void execute(Pc pc) const {
      if (cta->exited() || !barrier->live) {
        report({.kind = cta->exited() ? Class::kExit : Class::kBarrierState,
                .pc = pc,
                .shared_offset = barrier->offset,
                .text = std::string("tcgen05.commit arrives on an mbarrier ") +
                        (cta->exited() ? "of a CTA that has exited"
                                       : "that was invalidated meanwhile")});
        return;
      }
      barrier_arrive(*barrier, 1, &knows, pc, afar);
    }
  };
  struct Commit {
    std::vector<Arrival> arrivals;
    Pc pc;
    // What it tracks completes in order; arrivals on different barriers are in none.
    void execute() const {
      for (const Arrival& each : arrivals) submit(pc, [each, pc = pc] { each.execute(pc); });
    }
  };
  Commit commit{.arrivals = {}, .pc = pc};
  // The barrier may be another CTA's even without a mask: its address is a shared::cluster one.
  if (!multicast) mask = 1u << place.cta->rank;
  if (mask == 0 || mask >> cluster.ctas.size() != 0) {
    fail({.kind = Class::kDescriptor,
          .pc = pc,
          .shared_offset = place.offset,
          .text = "tcgen05.commit to mask " + std::to_string(mask) + " in a cluster of " +
                  std::to_string(cluster.ctas.size()) +
                  (cluster.ctas.size() == 1 ? " CTA" : " CTAs")});
  }
  AsyncActor tracked;
  if (checking()) tracked = pipe_actor(Pipe::kTensor, pc, kWhat);
  for (uint32_t rank = 0; rank < cluster.ctas.size(); ++rank) {
    if ((mask >> rank & 1) == 0) continue;
    Cta& cta = cluster.cta(rank);
    check_alive(cta, pc, kWhat);
    Barrier& barrier = cta.async_barrier(place.offset, pc, &cta != thread.cta, kWhat);
    Arrival arrival{&cta, &barrier, tracked.knows, &cta != thread.cta};
    if (checking()) {
      const AsyncActor own = copy_actor(pc, kWhat);
      arrival.knows.join(own.knows);
      barrier.commit = {own.actor.component, own.actor.epoch};
      barrier.commit_pc = pc;
      barrier.committed = {tracked.actor.component, tracked.actor.epoch};
      barrier.committed_afar = &cta != thread.cta;
    }
    commit.arrivals.push_back(std::move(arrival));
  }
  timed(Op::kTensorCommit, pc, 0, 0, 0, 0, true);
  const ArrivalBy by(By::kTensor);
  start(pc, std::move(commit));
}

}  // namespace kb::emu
