// What the emulator's inline ptx functions call for tensor memory and tcgen05 (PTX
// ISA 9.1, 9.7.16), wgmma (9.7.15), launch control and red (9.7.13). Each takes the caller's
// address on entry, so that a finding names the kernel's line.
#pragma once

#include <cstdint>

#include "ptx/types.cuh"

namespace kb::emu {

// tcgen05. `group` is 1 or 2; addresses are lane << 16 | column.
void tcgen05_alloc(uint32_t group, uint32_t* address, uint32_t columns);
void tcgen05_dealloc(uint32_t group, uint32_t tmem, uint32_t columns);
void tcgen05_relinquish_alloc_permit(uint32_t group);
void tcgen05_cp_32x128b_warpx4(uint32_t group, uint32_t tmem, uint64_t source);
// Operands of 4 bits, K = 64, with `scales` of them for a row: 2 (blocks of 32) or 4 (of 16).
void tcgen05_mma_fp4(uint32_t group, uint32_t scales, uint32_t d, uint64_t a, uint64_t b,
                     uint32_t instruction, uint32_t scales_a, uint32_t scales_b, bool accumulate);
// Operands of 16, 32 and 8 bits. `a`: a descriptor, or an address of tensor memory. The scales are
// those of mxf8f6f4, one for a row.
enum class DenseKind : uint32_t { kF16, kTf32, kF8f6f4, kMxf8f6f4, kI8 };
struct DenseOperands {
  uint32_t d;
  bool a_in_tmem;
  uint64_t a;
  uint64_t b;
  uint32_t scales_a = 0;
  uint32_t scales_b = 0;
};
void tcgen05_mma_dense(DenseKind kind, uint32_t group, const DenseOperands& operands,
                       uint32_t instruction, bool accumulate);
// `multicast`: to the CTAs of `mask`; otherwise to the barrier's own.
void tcgen05_commit(uint32_t group, void* bar, bool multicast, uint32_t mask);
void tcgen05_fence_before_thread_sync();
void tcgen05_fence_after_thread_sync();
enum class TmemShape : uint32_t { k32x32b, k16x64b, k16x128b, k16x256b, k16x32bx2 };
// `split`: of 16x32bx2, columns from the first half to the second.
void tcgen05_ld(TmemShape shape, uint32_t* out, uint32_t count, uint32_t tmem, uint32_t split = 0);
void tcgen05_wait_ld();
// Before the running lane uses registers of a load that it has not waited for.
void tcgen05_arrived(const uint32_t* out);
void tcgen05_st(TmemShape shape, uint32_t tmem, const uint32_t* in, uint32_t count,
                uint32_t split = 0);
void tcgen05_wait_st();

// Launch control.
void try_cancel(ClcResponse* response, void* bar, bool multicast);
bool query_is_canceled(const ClcResponse* response);
CtaIndex query_first_ctaid(const ClcResponse* response);

// wgmma. `a` is null for a descriptor, else the thread's four registers of A.
enum class WgmmaKind : uint32_t {
  kE4m3,
  kF16,
  kBf16,
  kTf32,
  kE4m3E5m2,
  kE5m2E4m3,
  kE5m2,
  kS8,
  kS8U8,
  kU8S8,
  kU8,
  kF16Half,  // sums of f16, two in a register of D
  kE4m3Half,
  kE4m3E5m2Half,
  kE5m2E4m3Half,
  kE5m2Half,
};
// Operands in shared memory whose rows run along M or N, of 16-bit elements: imm-trans-a and -b.
struct WgmmaTransposed {
  bool a = false;
  bool b = false;
  bool operator==(const WgmmaTransposed&) const = default;
};
void wgmma_fence();
void wgmma_commit_group();
void wgmma_wait_group(uint32_t pending);
void wgmma_copied(uint32_t* to, const uint32_t* from);
// `count`: elements of D in a thread.
void wgmma_mma_async(WgmmaKind kind, float* d, uint32_t count, const uint32_t* a, uint64_t a_tile,
                     uint64_t b_tile, bool accumulate, WgmmaTransposed transposed = {});

// red.relaxed.gpu.global.add of `count` floats, aligned as a whole.
void red_add_f32(float* dst, const float* value, uint32_t count);
// Relaxed additions to global and to the CTA's shared memory.
uint32_t atom_add_u32(uint32_t* dst, uint32_t value);
void red_shared_add_u32(uint32_t* dst, uint32_t value);

}  // namespace kb::emu
