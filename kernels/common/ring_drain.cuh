// The end of a ring of stages whose position runs on from tile to tile.
#pragma once

#include "pipeline.cuh"
#include "ptx/warp.cuh"
#include "wait.cuh"

namespace kb {

// By the converged warp that fills the stages of shared.empty: waits until every stage is empty.
// Then no commit is on its way to a barrier any more, and the CTA may end. `state`: where the load
// thread is.
template <typename Shared, uint32_t kStages>
KB_DEVICE void drain_stages(Shared& shared, PipelineState<kStages>& state) {
  if (ptx::elect_sync()) {
    for (uint32_t s = 0; s < kStages; ++s) {
      mbarrier_wait_parity(&shared.empty[state.stage], state.phase ^ 1);
      state.advance();
    }
  }
  ptx::bar_warp_sync();
}

}  // namespace kb
