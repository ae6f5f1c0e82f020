// Filling one stage of a block-scaled GEMM: tiles of A and B by the TMA, their scales by bulk
// copies.
#pragma once

#include "nvfp4.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"

namespace kb {

// By one thread, which has waited until the stage is empty: announces `bytes`, all that is copied,
// to `full`, and starts the copies of A's rows from tile.m_offset and B's from tile.n_offset on, at
// `k`. `sfa`, `sfb`: scales of the group's matrices, each operand of one row of atoms.
template <typename Stage, typename Tile>
KB_DEVICE void load_stage(Stage& stage, Mbarrier* full, uint32_t bytes, const TensorMap* map_a,
                          const TensorMap* map_b, const uint8_t* sfa, const uint8_t* sfb,
                          const Tile& tile, uint32_t k) {
  ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, full, bytes);
  ptx::cp_async_bulk_tensor_2d_shared_global(stage.a, map_a, e2m1_bytes(k), tile.m_offset, full);
  ptx::cp_async_bulk_tensor_2d_shared_global(stage.b, map_b, e2m1_bytes(k), tile.n_offset, full);
  ptx::cp_async_bulk_shared_global(stage.sfa, sfa + scale_atom_offset(tile.m_offset, k, tile.k),
                                   sizeof(stage.sfa), full);
  ptx::cp_async_bulk_shared_global(stage.sfb, sfb + scale_atom_offset(tile.n_offset, k, tile.k),
                                   sizeof(stage.sfb), full);
}

}  // namespace kb
