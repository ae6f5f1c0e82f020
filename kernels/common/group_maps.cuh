// A group's tensor maps, changed on the device: a copy in shared memory is pointed to other
// matrices and published in device memory. ptx/tensormap.cuh has the order of use.
#pragma once

#include "ptx/tensormap.cuh"
#include "ptx/warp.cuh"

namespace kb {

struct GroupMaps {
  TensorMap a, b, c;
};

// By one thread: `map`, in shared memory, becomes that of the matrix [rows, columns] at `address`,
// whose rows are `pitch` bytes apart; box, element and swizzle stay.
KB_DEVICE void replace_matrix(TensorMap* map, const void* address, uint32_t rows, uint32_t columns,
                              uint64_t pitch) {
  ptx::tensormap_replace_global_address(ptx::space_shared_cta, map, address);
  ptx::tensormap_replace_global_dim<0>(ptx::space_shared_cta, map, columns);
  ptx::tensormap_replace_global_dim<1>(ptx::space_shared_cta, map, rows);
  ptx::tensormap_replace_global_stride<0>(ptx::space_shared_cta, map, pitch);
}

// Likewise, that of a matrix with the same columns and pitch.
KB_DEVICE void replace_rows(TensorMap* map, const void* address, uint32_t rows) {
  ptx::tensormap_replace_global_address(ptx::space_shared_cta, map, address);
  ptx::tensormap_replace_global_dim<1>(ptx::space_shared_cta, map, rows);
}

// By the converged warp of which one lane has replaced fields. No copy may still read what is in
// `to`; threads that copy with it synchronize with the warp and acquire it first.
KB_DEVICE void publish_maps(GroupMaps* to, const GroupMaps& maps) {
  ptx::bar_warp_sync();
  ptx::tensormap_cp_fenceproxy(&to->a, &maps.a);
  ptx::tensormap_cp_fenceproxy(&to->b, &maps.b);
  ptx::tensormap_cp_fenceproxy(&to->c, &maps.c);
}

}  // namespace kb
