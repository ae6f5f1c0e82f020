// Cluster Launch Control from a counter: the launch starts the first clusters of the grid, requests
// hand out the others. Without LaunchConfig::launch_control all have started and each request is
// declined, which the hardware may do as well.
#pragma once

#include "ptx/cluster.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "state.inl"

namespace kb::soft {

// A response: granted or not, then the index of the cluster's first CTA.
struct Answer {
  uint32_t granted, x, y, z;
};
static_assert(sizeof(Answer) == sizeof(ClcResponse));

KB_DEVICE Answer next_cluster() {
  if (*static_cast<volatile uint32_t*>(&state.allocations[linear_cta()].declined) != 0) {
    fail(Fault::kRequestAfterDecline);
  }
  const uint32_t cluster = atomicAdd(state.next_cluster, 1);
  if (cluster >= state.clusters) return {0, ~0u, ~0u, ~0u};
  return {1, cluster * ptx::cluster_nctarank(), 0, 0};
}

KB_DEVICE void answer(ClcResponse* response, Mbarrier* bar, const Answer& granted, uint32_t rank) {
  const uint32_t words[4] = {granted.granted, granted.x, granted.y, granted.z};
  const auto* place = reinterpret_cast<const uint32_t*>(response);
#pragma unroll
  for (int i = 0; i < 4; ++i) ptx::st_shared_cluster(ptx::mapa(place + i, rank), words[i]);
  // The answer is there before the bytes come off the phase.
  __threadfence();
  ptx::mbarrier_complete_tx(ptx::sem_relaxed, ptx::scope_cluster, ptx::mapa(bar, rank),
                            static_cast<uint32_t>(sizeof(Answer)));
}

}  // namespace kb::soft

namespace kb::ptx {

template <typename T>
KB_DEVICE void clusterlaunchcontrol_try_cancel(ClcResponse* response, Mbarrier* bar) {
  soft::answer(response, bar, soft::next_cluster(), cluster_ctarank());
}

template <typename T>
KB_DEVICE void clusterlaunchcontrol_try_cancel_multicast_cluster_all(ClcResponse* response,
                                                                     Mbarrier* bar) {
  const soft::Answer granted = soft::next_cluster();
  for (uint32_t rank = 0; rank < cluster_nctarank(); ++rank) {
    soft::answer(response, bar, granted, rank);
  }
}

template <typename T>
KB_DEVICE bool clusterlaunchcontrol_query_cancel_is_canceled(const ClcResponse* response) {
  const bool granted = reinterpret_cast<const volatile soft::Answer*>(response)->granted != 0;
  if (!granted) soft::state.allocations[soft::linear_cta()].declined = 1;
  return granted;
}

template <typename T>
KB_DEVICE CtaIndex clusterlaunchcontrol_query_cancel_get_first_ctaid(const ClcResponse* response) {
  const auto* answer = reinterpret_cast<const volatile soft::Answer*>(response);
  return {answer->x, answer->y, answer->z};
}

}  // namespace kb::ptx
