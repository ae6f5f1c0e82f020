// As operand_maps.cuh, for loads that run on from tile to tile: when the group changes, some may
// still read the old maps, and the warp waits for them.
#pragma once

#include "ptx/tensormap.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"

namespace kb {

// patch_maps, by a warp whose loads with the old maps may not be complete.
template <typename Shared, typename Groups, typename Tile>
KB_DEVICE void patch_maps_after_loads(Shared& shared, const Groups& groups, const Tile& tile) {
  const auto& group = groups.table[tile.group];
  auto& maps = groups.maps[ptx::cta_index().x];
  if (ptx::elect_sync()) {
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read<0>();
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
