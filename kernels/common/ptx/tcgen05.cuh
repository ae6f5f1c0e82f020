// Tensor Memory and the fifth-generation tensor core: PTX ISA 9.1, 9.7.16. sm_100a only.
//
// A TMEM address is lane << 16 | column: 128 lanes, 512 columns of 32 bits per CTA. mma, cp and
// commit are issued by one thread (32 lanes would start 32 of them) and are asynchronous; the rest
// is executed by whole converged warps with equal operands in every lane. One kernel uses one
// cta_group throughout. With cta_group_2 an mma or cp acts in both CTAs of the pair, each on its
// own shared and tensor memory at the same addresses.
//
// In order for one issuing thread: mma after mma on the same accumulator, mma after cp, commit
// after both. Everything else needs a commit, a wait or a fence.
#pragma once

#include "address.cuh"

namespace kb::ptx {

// PTX: tcgen05.alloc.cta_group::<1|2>.sync.aligned.shared::cta.b32 [address], columns;
// sm_100a · the whole converged warp; cta_group_2: one warp of each CTA of the pair. columns: a
// power of two, 32 … 512, never more than in an earlier allocation of the CTA. Blocks until they
// are free. Writes the TMEM address as an ordinary store: other warps read it after a barrier.
template <int kCtas, typename T = Target>
KB_DEVICE void tcgen05_alloc(CtaGroup<kCtas>, uint32_t* address, uint32_t columns);

// PTX: tcgen05.dealloc.cta_group::<1|2>.sync.aligned.b32 tmem, columns;
// sm_100a · the whole converged warp (cta_group_2: of each CTA), after all use has been observed
// complete and before the CTA exits.
template <int kCtas, typename T = Target>
KB_DEVICE void tcgen05_dealloc(CtaGroup<kCtas>, uint32_t tmem, uint32_t columns);

// PTX: tcgen05.relinquish_alloc_permit.cta_group::<1|2>.sync.aligned;
// sm_100a · the whole converged warp. The CTA allocates no more.
template <int kCtas, typename T = Target>
KB_DEVICE void tcgen05_relinquish_alloc_permit(CtaGroup<kCtas>);

// PTX: tcgen05.cp.cta_group::<1|2>.32x128b.warpx4 [tmem], source;
// sm_100a · one thread. Copies 32 rows of 16 bytes, row i to lanes i, i + 32, i + 64 and i + 96 of
// four columns (a multiple of four): the layout of scale factors. Reads shared memory through
// the async proxy.
template <int kCtas, typename T = Target>
KB_DEVICE void tcgen05_cp_32x128b_warpx4(CtaGroup<kCtas>, uint32_t tmem, uint64_t source);

// PTX: tcgen05.mma.cta_group::<1|2>.kind::mxf4nvf4.block_scale.scale_vec::4X [d], a, b,
//      instruction, [scales_a], [scales_b], accumulate;
// sm_100a · one thread (cta_group_2: of one CTA of the pair). D = A B, plus D if `accumulate`: E2M1
// elements, one scale for 16 of them, K = 64, fp32 D. a, b: descriptors of K-major tiles, which
// must stay unchanged until a commit has been observed. Reads shared memory through the async
// proxy.
template <int kCtas, typename T = Target>
KB_DEVICE void tcgen05_mma_mxf4nvf4_block_scale_4x(CtaGroup<kCtas>, uint32_t d, uint64_t a,
                                                   uint64_t b, uint32_t instruction,
                                                   uint32_t scales_a, uint32_t scales_b,
                                                   bool accumulate);

// PTX: tcgen05.mma.cta_group::<1|2>.kind::mxf4nvf4.block_scale.scale_vec::4X
//      .collector::a::<fill|use|lastuse|discard> [d], a, b, instruction, [scales_a], [scales_b],
//      accumulate;
// sm_100a · as above, with a hint for keeping A between consecutive operations.
template <int kCtas, typename Collector, typename T = Target>
KB_DEVICE void tcgen05_mma_mxf4nvf4_block_scale_4x(CtaGroup<kCtas>, Collector, uint32_t d,
                                                   uint64_t a, uint64_t b, uint32_t instruction,
                                                   uint32_t scales_a, uint32_t scales_b,
                                                   bool accumulate);

// PTX: tcgen05.commit.cta_group::<1|2>.mbarrier::arrive::one.shared::cluster.b64 [bar];
// sm_100a · the thread that issued. Arrives once on bar when all its mma and cp so far are
// complete. Implies fence::before_thread_sync for them.
template <int kCtas, typename T = Target>
KB_DEVICE void tcgen05_commit(CtaGroup<kCtas>, Mbarrier* bar);

// PTX: tcgen05.commit.cta_group::<1|2>.mbarrier::arrive::one.shared::cluster
//      .multicast::cluster.b64 [bar], mask;
// sm_100a · as above, at the same offset in every CTA of the mask, none of which may have exited.
template <int kCtas, typename T = Target>
KB_DEVICE void tcgen05_commit(CtaGroup<kCtas>, Mbarrier* bar, ClusterMask mask);

// PTX: tcgen05.fence::before_thread_sync;
// sm_100a · any thread, before it arrives on a barrier. Orders its tcgen05 operations so far before
// those of a thread that synchronizes and then executes after_thread_sync.
template <typename T = Target>
KB_DEVICE void tcgen05_fence_before_thread_sync();

// PTX: tcgen05.fence::after_thread_sync;
// sm_100a · any thread, after it has waited on a barrier and before its next tcgen05 operation.
template <typename T = Target>
KB_DEVICE void tcgen05_fence_after_thread_sync();

// PTX: tcgen05.ld.sync.aligned.32x32b.<x1|x2|x4|x8|x16|x32|x64|x128>.b32 {out, …}, [tmem];
// sm_100a · the whole converged warp; warp w of its warpgroup reaches lanes 32 w … 32 w + 31 only.
// Thread t, register r: lane t, column r. The registers are valid after tcgen05_wait_ld.
template <int kCount, typename T = Target>
KB_DEVICE void tcgen05_ld_32x32b(uint32_t (&out)[kCount], uint32_t tmem);

// PTX: tcgen05.ld.sync.aligned.16x64b.<x1|x2|x4|x8|x16|x32|x64|x128>.b32 {out, …}, [tmem];
// sm_100a · as above; the address's lane is 32 w or 32 w + 16. Thread t, register r:
// lane t / 4 + 8 (t % 2), column t / 2 % 2 + 2 r.
template <int kCount, typename T = Target>
KB_DEVICE void tcgen05_ld_16x64b(uint32_t (&out)[kCount], uint32_t tmem);

// PTX: tcgen05.ld.sync.aligned.16x256b.<x1|x2|x4|x8|x16|x32>.b32 {out, …}, [tmem];
// sm_100a · as above; the address's lane is 32 w or 32 w + 16. kCount = 4 per x. Thread t, register
// r: lane t / 4 + 8 (r / 2 % 2), column 2 (t % 4) + r % 2 + 8 (r / 4).
template <int kCount, typename T = Target>
KB_DEVICE void tcgen05_ld_16x256b(uint32_t (&out)[kCount], uint32_t tmem);

// PTX: tcgen05.wait::ld.sync.aligned;
// sm_100a · the whole converged warp. Returns when the registers of its loads hold their values.
template <typename T = Target>
KB_DEVICE void tcgen05_wait_ld();

// PTX: tcgen05.wait::ld.sync.aligned;
// sm_100a · as above. The compiler reads `values` behind the wait and not before: a memory clobber
// says nothing of registers.
template <int kCount, typename T = Target>
KB_DEVICE void tcgen05_wait_ld(uint32_t (&values)[kCount]);

// PTX: tcgen05.st.sync.aligned.32x32b.<x1|x2|x4|x8|x16|x32|x64|x128>.b32 [tmem], {in, …};
// sm_100a · the whole converged warp; lanes and columns as tcgen05_ld_32x32b.
template <int kCount, typename T = Target>
KB_DEVICE void tcgen05_st_32x32b(uint32_t tmem, const uint32_t (&in)[kCount]);

// PTX: tcgen05.wait::st.sync.aligned;
// sm_100a · the whole converged warp. Returns when its stores are complete.
template <typename T = Target>
KB_DEVICE void tcgen05_wait_st();

}  // namespace kb::ptx

#include "tcgen05.inl"
