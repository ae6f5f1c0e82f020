// Clusters and distributed shared memory: PTX ISA 9.1, 9.7.13 (barrier.cluster), 9.7.9 (mapa,
// getctarank, st.async), 10 (special registers). A CTA must not exit while another may still reach
// its shared memory, barriers included: every cluster kernel ends with a cluster barrier.
#pragma once

#include "address.cuh"

namespace kb::ptx {

// PTX: mov.u32 rank, %cluster_ctarank;
// sm_90+ · any thread. Rank of the CTA in its cluster, x fastest.
KB_DEVICE uint32_t cluster_ctarank();

// PTX: mov.u32 count, %cluster_nctarank;
// sm_90+ · any thread. CTAs in the cluster.
KB_DEVICE uint32_t cluster_nctarank();

// PTX: mov.u32 x, %cluster_ctaid.x;
// sm_90+ · any thread. The CTA's x position in its cluster.
KB_DEVICE uint32_t cluster_ctaid_x();

// PTX: mov.u32 x, %clusterid.x;
// sm_90+ · any thread. The cluster's x position in the grid of clusters.
KB_DEVICE uint32_t clusterid_x();

// PTX: barrier.cluster.arrive.<release|relaxed>.aligned;
// sm_90+ · every thread of every CTA, in converged warps. Release: earlier accesses are visible to
// threads whose wait completes. Relaxed orders nothing.
template <typename Sem>
KB_DEVICE void barrier_cluster_arrive(Sem);

// PTX: barrier.cluster.wait.acquire.aligned;
// sm_90+ · every thread that arrived, in converged warps. Returns when all threads of the cluster
// that have not exited have arrived.
KB_DEVICE void barrier_cluster_wait(SemAcquire);

// PTX: mapa.shared::cluster.u32 mapped, pointer, rank;
// sm_90+ · any thread. The same offset in the shared memory of the CTA with that rank; orders
// nothing. All CTAs of the cluster run one kernel, so the offset names the same variable there.
template <typename T>
KB_DEVICE ClusterAddress<T> mapa(const T* pointer, uint32_t rank);

// PTX: getctarank.shared::cluster.u32 rank, address;
// sm_90+ · any thread. Rank of the CTA whose shared memory the address is in.
template <typename T>
KB_DEVICE uint32_t getctarank(ClusterAddress<T> address);

// PTX: st.shared::cluster.b32 [address], value;
// sm_90+ · any thread. A weak generic store of 32 bits: visible to its reader after a cluster
// barrier or a remote mbarrier arrival with release.
template <typename T>
KB_DEVICE void st_shared_cluster(ClusterAddress<T> address, T value);

// PTX: ld.shared::cluster.b32 word, [address];
// sm_90+ · any thread. A weak generic load of 32 bits.
template <typename T>
KB_DEVICE T ld_shared_cluster(ClusterAddress<T> address);

// PTX: st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [address], value, [bar];
// sm_90+ · any thread; bar in the same CTA as address. Stores asynchronously and takes 4 bytes off
// the barrier's phase; a thread there that acquires the phase sees the value.
template <typename T>
KB_DEVICE void st_async_shared_cluster(ClusterAddress<T> address, T value,
                                       ClusterAddress<Mbarrier> bar);

}  // namespace kb::ptx

#include "cluster.inl"
