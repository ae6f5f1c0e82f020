// A CTA's own tensor map of C, pointed to one group after another where all groups have the same N:
// the address changes, and the rows. One of the warps that store keeps it; operand_maps.cuh has
// those of the loads.
#pragma once

#include "ptx/tensormap.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"

namespace kb {

// By the converged warp that stores: when its stores have read the old map, points shared.map_c to
// the tile's group and publishes it in groups.maps, which has a set for each CTA.
// groups.table[tile.group] has the address c and the rows m.
template <typename Shared, typename Groups, typename Tile>
KB_DEVICE void patch_map_c(Shared& shared, const Groups& groups, const Tile& tile) {
  const auto& group = groups.table[tile.group];
  TensorMap* map_c = &groups.maps[ptx::cta_index().x].c;
  if (ptx::elect_sync()) {
    ptx::cp_async_bulk_wait_group_read<0>();
    ptx::tensormap_replace_global_address(ptx::space_shared_cta, &shared.map_c, group.c);
    ptx::tensormap_replace_global_dim<1>(ptx::space_shared_cta, &shared.map_c, group.m);
  }
  ptx::bar_warp_sync();
  ptx::tensormap_cp_fenceproxy(map_c, &shared.map_c);
  ptx::fence_proxy_tensormap_generic_acquire_gpu(map_c);
}

}  // namespace kb
