// A CTA's own tensor maps of A and B, pointed to one group after another where all groups have the
// same N and K: addresses change, and A's rows. The loading warp changes copies in shared memory
// and publishes them in device memory; ptx/tensormap.cuh has the order of use.
#pragma once

#include "ptx/tensormap.cuh"
#include "ptx/warp.cuh"

namespace kb {

// By the converged warp that loads, when its loads with the old maps are complete: points
// shared.map_a and shared.map_b to the tile's group and publishes them in groups.maps, which has a
// set for each CTA. groups.table[tile.group] has the addresses a and b, and the rows m.
template <typename Shared, typename Groups, typename Tile>
KB_DEVICE void patch_maps(Shared& shared, const Groups& groups, const Tile& tile) {
  const auto& group = groups.table[tile.group];
  auto& maps = groups.maps[ptx::cta_index().x];
  if (ptx::elect_sync()) {
    ptx::tensormap_replace_global_address(ptx::space_shared_cta, &shared.map_a, group.a);
    ptx::tensormap_replace_global_dim<1>(ptx::space_shared_cta, &shared.map_a, group.m);
    ptx::tensormap_replace_global_address(ptx::space_shared_cta, &shared.map_b, group.b);
  }
  ptx::bar_warp_sync();
  ptx::tensormap_cp_fenceproxy(&maps.a, &shared.map_a);
  ptx::tensormap_cp_fenceproxy(&maps.b, &shared.map_b);
  ptx::fence_proxy_tensormap_generic_acquire_gpu(&maps.a);
  ptx::fence_proxy_tensormap_generic_acquire_gpu(&maps.b);
}

}  // namespace kb
