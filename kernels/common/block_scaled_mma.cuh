// The block-scaled product of one stage: its scales are copied to tensor memory, then it is
// multiplied 64 elements of K at a time. Both by one thread, which has waited for the stage; the
// tensor core runs copies and products in the order in which they are issued.
#pragma once

#include "descriptors.cuh"
#include "nvfp4.cuh"
#include "ptx/tcgen05.cuh"
#include "ptx/warp.cuh"

namespace kb {

inline constexpr uint32_t kMmaK = 64;  // e2m1 elements of K that one instruction multiplies
static_assert(kMmaK == kScaleAtomK, "an atom holds the scales of one instruction");

// How an operand with rows of `row_bytes` lies in shared memory: a row fills one period of the
// swizzle.
KB_HOST_DEVICE constexpr SmemTile operand_tile(uint32_t row_bytes) {
  return row_bytes == 128 ? kTileSw128 : row_bytes == 64 ? kTileSw64 : kTileSw32;
}

// Descriptors of a stage's tiles of A and B and of their scales.
struct StageDescriptors {
  uint64_t a, b, sfa, sfb;
};

template <uint32_t kTileK, typename Stage>
KB_DEVICE StageDescriptors describe_stage(const Stage& stage) {
  constexpr SmemTile kOperand = operand_tile(e2m1_bytes(kTileK));
  return {.a = tcgen05_smem_descriptor(kOperand, ptx::smem_address(stage.a)),
          .b = tcgen05_smem_descriptor(kOperand, ptx::smem_address(stage.b)),
          .sfa = tcgen05_smem_descriptor(kTileScales, ptx::smem_address(stage.sfa)),
          .sfb = tcgen05_smem_descriptor(kTileScales, ptx::smem_address(stage.sfb))};
}

// Copies a stage's scales to tensor memory: A's, one row of atoms, from column `tmem_sfa` on, and
// B's, kScaleRowsB rows of them, from `tmem_sfb` on: what an instruction needs of B is contiguous.
template <uint32_t kTileK, uint32_t kScaleRowsB = 1, typename CtaGroup>
KB_DEVICE void copy_scales(CtaGroup group, const StageDescriptors& stage, uint32_t tmem_sfa,
                           uint32_t tmem_sfb) {
  constexpr uint32_t kScaleBytes = kTileK / kScaleAtomK * kScaleAtomBytes;
  for (uint32_t i = 0; i < kTileK / kMmaK; ++i) {
    ptx::tcgen05_cp_32x128b_warpx4(group, tmem_sfa + i * kScaleAtomColumns,
                                   smem_descriptor_advance(stage.sfa, i * kScaleAtomBytes));
    for (uint32_t r = 0; r < kScaleRowsB; ++r) {
      ptx::tcgen05_cp_32x128b_warpx4(
          group, tmem_sfb + (i * kScaleRowsB + r) * kScaleAtomColumns,
          smem_descriptor_advance(stage.sfb, r * kScaleBytes + i * kScaleAtomBytes));
    }
  }
}

// An operand: its tile in a stage, and the column of tensor memory from which its scales lie.
struct ScaledOperand {
  uint64_t tile;
  uint32_t scales;
};

// D = A B^T, or D += A B^T if `accumulate`, over kTileK elements of K. Rows of `a` are lanes of the
// accumulator at `tmem`, rows of `b` its columns; kScaleRowsB as for copy_scales.
template <uint32_t kTileK, uint32_t kScaleRowsB = 1, typename CtaGroup>
KB_DEVICE void multiply_stage(CtaGroup group, Mxf4nvf4Instruction instruction, uint32_t tmem,
                              ScaledOperand a, ScaledOperand b, bool accumulate) {
  for (uint32_t i = 0; i < kTileK / kMmaK; ++i) {
    ptx::tcgen05_mma_mxf4nvf4_block_scale_4x(
        group, tmem, smem_descriptor_advance(a.tile, i * e2m1_bytes(kMmaK)),
        smem_descriptor_advance(b.tile, i * e2m1_bytes(kMmaK)), instruction.bits(),
        a.scales + i * kScaleAtomColumns, b.scales + i * kScaleRowsB * kScaleAtomColumns,
        accumulate || i != 0);
  }
}

}  // namespace kb
