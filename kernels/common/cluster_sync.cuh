// What CTAs of a cluster need to work together: a barrier of all threads, and waiting for each
// other's arrivals.
#pragma once

#include "ptx/cluster.cuh"
#include "wait.cuh"

namespace kb {

// By every thread of every CTA of the cluster, in converged warps. Orders their accesses. Needed
// before the first and after the last use of another CTA's shared memory, barriers included.
KB_DEVICE void cluster_sync() {
  ptx::barrier_cluster_arrive(ptx::sem_release);
  ptx::barrier_cluster_wait(ptx::sem_acquire);
}

// mbarrier_wait_parity with acquire at cluster scope: for barriers that another CTA's copies or
// commits arrive on, too.
KB_DEVICE void cluster_wait_parity(const Mbarrier* bar, uint32_t parity) {
  mbarrier_wait_parity(ptx::sem_acquire, ptx::scope_cluster, bar, parity);
}

// Every CTA of a cluster of `ctas`: the receivers of a multicast.
KB_HOST_DEVICE constexpr ClusterMask cluster_mask(uint32_t ctas) {
  return {static_cast<uint16_t>((1u << ctas) - 1)};
}

}  // namespace kb
