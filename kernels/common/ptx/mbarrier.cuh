// mbarrier: PTX ISA 9.1, 9.7.13.15. A phase completes when its pending arrivals and its pending
// transaction bytes are both zero; the next phase then starts with the expected arrivals.
// Every instruction here goes through the generic proxy; fence_mbarrier_init_* is in fence.cuh.
#pragma once

#include "address.cuh"

namespace kb::ptx {

// PTX: mbarrier.init.shared::cta.b64 [bar], count;
// sm_80+ · one thread. count in 1 … 2^20 - 1 arrivals per phase.
// Orders nothing: other threads of the CTA may use the barrier after a CTA barrier; other CTAs, TMA
// multicast and commits after fence_mbarrier_init_release_cluster and a cluster barrier.
KB_DEVICE void mbarrier_init(Mbarrier* bar, uint32_t count);

// PTX: mbarrier.inval.shared::cta.b64 [bar];
// sm_80+ · one thread, when no operation on the barrier is pending. Frees its bytes for other use.
KB_DEVICE void mbarrier_inval(Mbarrier* bar);

// PTX: mbarrier.arrive.<release|relaxed>.<cta|cluster>.shared::cta.b64 _, [bar], count;
// sm_90+ · every thread that is counted. Release: its earlier accesses, and those it has observed,
// are visible to a thread that acquires the completed phase. Does not order the async proxy.
template <typename Sem, typename Scope>
KB_DEVICE void mbarrier_arrive(Sem, Scope, Mbarrier* bar, uint32_t count = 1);

// PTX: mbarrier.arrive.<release|relaxed>.cluster.shared::cluster.b64 _, [bar], count;
// sm_90+ · every thread that is counted. As above, on a barrier of any CTA of the cluster, which
// must not have exited.
template <typename Sem>
KB_DEVICE void mbarrier_arrive(Sem, ScopeCluster, ClusterAddress<Mbarrier> bar, uint32_t count = 1);

// PTX: mbarrier.arrive_drop.<release|relaxed>.<cta|cluster>.shared::cta.b64 _, [bar];
// sm_90+ · every thread that leaves. Arrives once, and later phases expect one arrival less.
template <typename Sem, typename Scope>
KB_DEVICE void mbarrier_arrive_drop(Sem, Scope, Mbarrier* bar);

// PTX: mbarrier.arrive.expect_tx.<release|relaxed>.<cta|cluster>.shared::cta.b64 _, [bar], bytes;
// sm_90+ · usually one thread, the producer. Adds `bytes` to the phase, then arrives once, as one
// operation: the phase cannot complete between the two.
template <typename Sem, typename Scope>
KB_DEVICE void mbarrier_arrive_expect_tx(Sem, Scope, Mbarrier* bar, uint32_t bytes);

// PTX: mbarrier.arrive.expect_tx.<release|relaxed>.cluster.shared::cluster.b64 _, [bar], bytes;
// sm_90+ · as above, on a barrier of any CTA of the cluster.
template <typename Sem>
KB_DEVICE void mbarrier_arrive_expect_tx(Sem, ScopeCluster, ClusterAddress<Mbarrier> bar,
                                         uint32_t bytes);

// PTX: mbarrier.expect_tx.relaxed.<cta|cluster>.shared::cta.b64 [bar], bytes;
// sm_90+ · any thread, while an arrival of the phase is still pending. Adds `bytes` to the phase.
// Orders nothing, never completes the phase.
template <typename Scope>
KB_DEVICE void mbarrier_expect_tx(SemRelaxed, Scope, Mbarrier* bar, uint32_t bytes);

// PTX: mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [bar], bytes;
// sm_90+ · as above, on a barrier of any CTA of the cluster.
KB_DEVICE void mbarrier_expect_tx(SemRelaxed, ScopeCluster, ClusterAddress<Mbarrier> bar,
                                  uint32_t bytes);

// PTX: mbarrier.complete_tx.relaxed.<cta|cluster>.shared::cta.b64 [bar], bytes;
// sm_90+ · any thread. Stands in for an asynchronous copy: takes `bytes` off the phase and
// completes it if nothing else is pending. Orders nothing.
template <typename Scope>
KB_DEVICE void mbarrier_complete_tx(SemRelaxed, Scope, Mbarrier* bar, uint32_t bytes);

// PTX: mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [bar], bytes;
// sm_90+ · as above, on a barrier of any CTA of the cluster.
KB_DEVICE void mbarrier_complete_tx(SemRelaxed, ScopeCluster, ClusterAddress<Mbarrier> bar,
                                    uint32_t bytes);

// PTX: mbarrier.try_wait.parity.<acquire|relaxed>.<cta|cluster>.shared::cta.b64 done, [bar],
//      parity;
// sm_90+ · every thread that waits; the CTA's own barriers only. True if the phase with `parity`
// has completed: parity must be that of the current phase (false) or of the one before (true); on a
// new barrier parity 1 is true at once. May suspend the thread, may return false: loop.
// Acquire: what the arrivals released, and the bytes of copies completed on this barrier, are
// visible. Take scope cluster when an arrival or a commit comes from another CTA.
template <typename Sem, typename Scope>
KB_DEVICE bool mbarrier_try_wait_parity(Sem, Scope, const Mbarrier* bar, uint32_t parity);

// PTX: mbarrier.try_wait.parity.<acquire|relaxed>.<cta|cluster>.shared::cta.b64 done, [bar],
//      parity, suspend_ns;
// sm_90+ · as above, suspended for about `suspend_ns` nanoseconds at most.
template <typename Sem, typename Scope>
KB_DEVICE bool mbarrier_try_wait_parity(Sem, Scope, const Mbarrier* bar, uint32_t parity,
                                        uint32_t suspend_ns);

// PTX: mbarrier.test_wait.parity.<acquire|relaxed>.<cta|cluster>.shared::cta.b64 done, [bar],
//      parity;
// sm_90+ · every thread that polls. As try_wait, and returns at once.
template <typename Sem, typename Scope>
KB_DEVICE bool mbarrier_test_wait_parity(Sem, Scope, const Mbarrier* bar, uint32_t parity);

}  // namespace kb::ptx

#include "mbarrier.inl"
