// The end of a ring of stages that a cluster shares; ring_drain.cuh is that of one CTA.
#pragma once

#include "cluster_sync.cuh"
#include "pipeline.cuh"
#include "ptx/warp.cuh"

namespace kb {

// By the converged warp that fills the stages of shared.empty: waits until every stage is empty in
// all CTAs that commits to it come from. Then none is on its way to a barrier of this CTA any more.
// `state`: where the load thread is.
template <typename Shared, uint32_t kStages>
KB_DEVICE void drain_cluster_stages(Shared& shared, PipelineState<kStages>& state) {
  if (ptx::elect_sync()) {
    for (uint32_t s = 0; s < kStages; ++s) {
      cluster_wait_parity(&shared.empty[state.stage], state.phase ^ 1);
      state.advance();
    }
  }
  ptx::bar_warp_sync();
}

}  // namespace kb
