// Cluster Launch Control, PTX ISA 9.1, 9.7.13: the answer's 16 bytes are the emulator's own.
#include <cstring>

#include "api_tensor.hpp"
#include "core.hpp"
#include "timing.hpp"

namespace kb::emu {

namespace {

// PTX: a 16-byte opaque response (9.7.13); query_cancel is the only way to read it.
constexpr uint32_t kAnswerBytes = 16;
constexpr uint32_t kMagic = 0x43414e43;

struct Answer {
  uint32_t magic = kMagic;
  uint32_t canceled = 0;
  uint32_t x = 0;
  uint16_t y = 0;
  uint16_t z = 0;
};
static_assert(sizeof(Answer) == kAnswerBytes);

// Index of a cluster's first CTA.
// PTX: get_first_ctaid gives the index of the canceled cluster's first CTA; the others follow from
// %cluster_ctaid.
Answer answer_of(const Launch& launch, int64_t cluster) {
  if (cluster < 0) return {};
  const CtaIndex first = launch.cta_index(static_cast<uint32_t>(cluster), 0);
  return {.canceled = 1,
          .x = first.x,
          .y = static_cast<uint16_t>(first.y),
          .z = static_cast<uint16_t>(first.z)};
}

// The answer, which the running thread reads as ordinary shared memory.
// PTX: query_cancel takes the response in a register, loaded by an ordinary load through the
// generic proxy: it has to be ordered behind the barrier that the answer completes on.
Answer read_answer(const ClcResponse* response, Pc pc, const char* what) {
  const SharedPlace place = shared_place(response, pc, what);
  shared_read(*place.cta, place.offset, kAnswerBytes, generic_actor(pc, what));
  Answer answer;
  std::memcpy(&answer, place.cta->shared + place.offset, kAnswerBytes);
  if (answer.magic != kMagic) {
    fail({.kind = Class::kEarlyRead,
          .pc = pc,
          .shared_offset = place.offset,
          .text = std::string(what) + " reads bytes that no request has answered"});
  }
  return answer;
}

}  // namespace

// PTX: clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes, with or
// without .multicast::cluster::all (9.7.13): one thread, an asynchronous write of 16 bytes and
// complete-tx of 16 on the barrier, in each CTA that it goes to.
// The request is answered at once; the answer's bytes arrive like a copy's, in the CTA or in all of
// the cluster.
// Assumption: requests are granted in ascending order of cluster ids, and one in sixteen is
// declined at random while clusters are left: PTX promises neither.
// Assumption: the answer comes through the async proxy, so a response that ordinary stores wrote
// needs fence.proxy.async before it is reused.
// Stricter: asking again after a declined answer was read is undefined in PTX and reported at once.
void try_cancel(ClcResponse* response, void* bar, bool multicast) {
  const Pc pc = KB_EMU_PC;
  constexpr const char* kWhat = "clusterlaunchcontrol.try_cancel";
  interleave();
  Thread& thread = self();
  const SharedPlace place = shared_place(response, pc, kWhat);
  const SharedPlace bar_place = shared_place(bar, pc, kWhat);
  if (place.cta != thread.cta || bar_place.cta != thread.cta || place.offset % 16 != 0) {
    fail({.kind = Class::kAlignment,
          .pc = pc,
          .shared_offset = place.offset,
          .text = std::string(kWhat) +
                  " answers to 16 aligned bytes and an mbarrier of the CTA's own shared memory"});
  }
  if (thread.cta->tensor.launch_declined != nullptr) {
    report({.kind = Class::kOrder,
            .pc = pc,
            .other_pc = thread.cta->tensor.launch_declined,
            .shared_offset = place.offset,
            .text = std::string(kWhat) +
                    " after the CTA has read an answer that gave it nothing: undefined"});
  }
  struct Target {
    Cta* cta;
    Barrier* barrier;
  };
  // The copy's actor is one for all destinations: their barriers release the same knowledge.
  std::vector<Target> targets;
  AsyncActor actor;
  actor.actor.pc = pc;
  actor.actor.what = kWhat;
  if (checking()) actor = copy_actor(pc, kWhat);
  for (Cta& cta : thread.cta->cluster->ctas) {
    if (!multicast && &cta != thread.cta) continue;
    if (cta.exited()) {
      fail({.kind = Class::kExit,
            .pc = pc,
            .text = std::string(kWhat) + " answers to CTA " + std::to_string(cta.rank) +
                    " of the cluster, which has exited"});
    }
    shared_write(cta, place.offset, kAnswerBytes, actor.get());
    if (checking()) std::memset(cta.shared + place.offset, 0xff, kAnswerBytes);
    Barrier& barrier = cta.async_barrier(bar_place.offset, pc, &cta != thread.cta, kWhat);
    barrier.bytes_in_flight += kAnswerBytes;
    ++cta.tensor.launch_requests;
    cta.tensor.launch_request_pc = pc;
    targets.push_back({&cta, &barrier});
  }
  Launch& launch = *thread.cta->cluster->launch;
  // Decided at the issue: in which order requests of different clusters are served is anybody's
  // guess, and the answer's arrival is what can be early or late.
  timed(Op::kTryCancel, pc, 0, 0, 0, 0, true);
  const ArrivalBy by(By::kLaunchControl);
  const Answer answer = answer_of(launch, launch.cancel_next_cluster());
  submit(pc, [answer, offset = place.offset, targets = std::move(targets), actor = std::move(actor),
              pc] {
    for (const Target& target : targets) {
      --target.cta->tensor.launch_requests;
      target.barrier->bytes_in_flight -= kAnswerBytes;
      std::memcpy(target.cta->shared + offset, &answer, kAnswerBytes);
      barrier_complete_tx(*target.barrier, kAnswerBytes, &actor.knows, pc);
    }
  });
}

// PTX: clusterlaunchcontrol.query_cancel.is_canceled (9.7.13).
// An answer that grants nothing ends the asking: another request is undefined.
bool query_is_canceled(const ClcResponse* response) {
  const Pc pc = KB_EMU_PC;
  interleave();
  const Answer answer = read_answer(response, pc, "clusterlaunchcontrol.query_cancel.is_canceled");
  if (answer.canceled == 0) self().cta->tensor.launch_declined = pc;
  return answer.canceled != 0;
}

// PTX: clusterlaunchcontrol.query_cancel.get_first_ctaid (9.7.13), undefined unless is_canceled is
// true.
// Defined for an answer that grants a cluster only.
CtaIndex query_first_ctaid(const ClcResponse* response) {
  const Pc pc = KB_EMU_PC;
  constexpr const char* kWhat = "clusterlaunchcontrol.query_cancel.get_first_ctaid";
  interleave();
  const Answer answer = read_answer(response, pc, kWhat);
  if (answer.canceled == 0) {
    report({.kind = Class::kOrder,
            .pc = pc,
            .text = std::string(kWhat) + " of an answer that gives nothing: undefined"});
    return {~0u, ~0u, ~0u};
  }
  return {answer.x, answer.y, answer.z};
}

}  // namespace kb::emu
