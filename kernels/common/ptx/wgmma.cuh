// Warpgroup matrix multiplication: PTX ISA 9.1, 9.7.15. sm_90a only. Executed by all 128 threads of
// a warpgroup (four warps, the first with an index that is a multiple of four).
//
// Accumulator register v of thread t in warp w of the warpgroup: row 16 w + t / 4 + 8 (v / 2 % 2),
// column 8 (v / 4) + 2 (t % 4) + v % 2. The kCount accumulators make N = 2 kCount columns.
// Accumulators, fragments of A and shared memory operands belong to the hardware from the
// mma_async until a wait_group that covers it. Shared memory is read through the async proxy.
#pragma once

#include "address.cuh"

namespace kb::ptx {

// PTX: wgmma.fence.sync.aligned;
// sm_90a · the warpgroup, before its first mma_async and whenever ordinary code has since touched
// accumulators or fragments. Orders register accesses with mma_async; no proxy fence.
template <typename T = Target>
KB_DEVICE void wgmma_fence();

// PTX: wgmma.fence.sync.aligned;
// sm_90a · as above. The compiler has written `d` before the fence and not moved it behind.
template <int kCount, typename T = Target>
KB_DEVICE void wgmma_fence(float (&d)[kCount]);

// PTX: wgmma.commit_group.sync.aligned;
// sm_90a · the warpgroup. Makes a group of its mma_async since the last one.
template <typename T = Target>
KB_DEVICE void wgmma_commit_group();

// PTX: wgmma.wait_group.sync.aligned kPending;
// sm_90a · the warpgroup. Returns when at most kPending of its newest groups are incomplete.
template <int kPending, typename T = Target>
KB_DEVICE void wgmma_wait_group();

// PTX: wgmma.wait_group.sync.aligned kPending;
// sm_90a · as above. The compiler reads `d` behind the wait and not before: a memory clobber says
// nothing of registers.
template <int kPending, int kCount, typename T = Target>
KB_DEVICE void wgmma_wait_group(float (&d)[kCount]);

// PTX: wgmma.mma_async.sync.aligned
//      .m64n<8|16|24|32|40|48|56|64|72|80|88|96|104|112|120|128>k32
//      .f32.e4m3.e4m3 {d, …}, a, b, accumulate, 1, 1;
//      wgmma.mma_async.sync.aligned
//      .m64n<136|144|152|160|168|176|184|192|200|208|216|224|232|240|248|256>k32
//      .f32.e4m3.e4m3 {d, …}, a, b, accumulate, 1, 1;
// sm_90a · the warpgroup. D = A B, plus D if `accumulate`; a, b: descriptors of K-major tiles. Any
// N that is a multiple of 8, up to 256. The accumulator keeps about 14 bits: add to other registers
// after 128 of K at the latest.
template <int kCount, typename T = Target>
KB_DEVICE void wgmma_mma_async_f32_e4m3_e4m3(float (&d)[kCount], uint64_t a, uint64_t b,
                                             bool accumulate);

// PTX: wgmma.mma_async.sync.aligned
//      .m64n<8|16|24|32|40|48|56|64|72|80|88|96|104|112|120|128>k32
//      .f32.e4m3.e4m3 {d, …}, {a, a, a, a}, b, accumulate, 1, 1;
//      wgmma.mma_async.sync.aligned
//      .m64n<136|144|152|160|168|176|184|192|200|208|216|224|232|240|248|256>k32
//      .f32.e4m3.e4m3 {d, …}, {a, a, a, a}, b, accumulate, 1, 1;
// sm_90a · as above, A from registers. Element i of 16 (register i / 4, low byte first): row
// 16 w + t / 4 + 8 (i / 4 % 2), k = 4 (t % 4) + i % 4 + 16 (i / 8).
template <int kCount, typename T = Target>
KB_DEVICE void wgmma_mma_async_f32_e4m3_e4m3(float (&d)[kCount], const uint32_t (&a)[4], uint64_t b,
                                             bool accumulate);

// PTX: wgmma.mma_async.sync.aligned
//      .m64n<8|16|24|32|40|48|56|64|72|80|88|96|104|112|120|128>k16
//      .f32.f16.f16 {d, …}, a, b, accumulate, 1, 1, 0, 0;
//      wgmma.mma_async.sync.aligned
//      .m64n<136|144|152|160|168|176|184|192|200|208|216|224|232|240|248|256>k16
//      .f32.f16.f16 {d, …}, a, b, accumulate, 1, 1, 0, 0;
// sm_90a · the warpgroup. Both tiles K-major. Any N that is a multiple of 8, up to 256.
template <int kCount, typename T = Target>
KB_DEVICE void wgmma_mma_async_f32_f16_f16(float (&d)[kCount], uint64_t a, uint64_t b,
                                           bool accumulate);

// PTX: wgmma.mma_async.sync.aligned
//      .m64n<8|16|24|32|40|48|56|64|72|80|88|96|104|112|120|128>k16
//      .f32.f16.f16 {d, …}, {a, a, a, a}, b, accumulate, 1, 1, 0;
//      wgmma.mma_async.sync.aligned
//      .m64n<136|144|152|160|168|176|184|192|200|208|216|224|232|240|248|256>k16
//      .f32.f16.f16 {d, …}, {a, a, a, a}, b, accumulate, 1, 1, 0;
// sm_90a · as above, A from registers. Element i of 8 (register i / 2, low half first): row
// 16 w + t / 4 + 8 (i / 2 % 2), k = 2 (t % 4) + i % 2 + 8 (i / 4).
template <int kCount, typename T = Target>
KB_DEVICE void wgmma_mma_async_f32_f16_f16(float (&d)[kCount], const uint32_t (&a)[4], uint64_t b,
                                           bool accumulate);

}  // namespace kb::ptx

#include "wgmma.inl"
