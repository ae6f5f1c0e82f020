// Accumulators in tensor memory that go back and forth between the MMA and the epilogue.
#pragma once

#include "ptx/mbarrier.cuh"
#include "ptx/tcgen05.cuh"
#include "ptx/warp.cuh"

namespace kb {

// By each converged warp of the epilogue, when its loads of the accumulators are complete: hands
// them back. One arrival a warp.
KB_DEVICE void release_accumulators(Mbarrier* tmem_empty) {
  ptx::tcgen05_fence_before_thread_sync();
  ptx::bar_warp_sync();
  if (ptx::elect_sync()) ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, tmem_empty);
}

}  // namespace kb
