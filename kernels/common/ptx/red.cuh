// Atomic additions to global and shared memory: PTX ISA 9.1, 9.7.13 (red, atom). Any thread. Each
// element is added atomically, a vector as a whole is not; the order of additions, and so the last
// bits of a float sum, is not fixed. Relaxed ones order nothing else.
#pragma once

#include "address.cuh"

namespace kb::ptx {

// PTX: red.relaxed.gpu.global.add.v4.f32 [dst], {value, value, value, value};
// sm_90+. dst 16-byte aligned.
KB_DEVICE void red_relaxed_gpu_global_add_v4_f32(float* dst, const float (&value)[4]);

// PTX: red.relaxed.gpu.global.add.v2.f32 [dst], {value, value};
// sm_90+. dst 8-byte aligned.
KB_DEVICE void red_relaxed_gpu_global_add_v2_f32(float* dst, const float (&value)[2]);

// PTX: red.relaxed.gpu.global.add.f32 [dst], value;
// sm_70+.
KB_DEVICE void red_relaxed_gpu_global_add_f32(float* dst, float value);

// PTX: red.release.gpu.global.add.u32 [dst], value;
// sm_70+. Release: the thread's earlier accesses, and those it has observed, are visible to a
// thread that sees the new count with acquire (global_wait_at_least).
KB_DEVICE void red_release_gpu_global_add_u32(uint32_t* dst, uint32_t value);

// PTX: atom.relaxed.gpu.global.add.u32 old, [dst], value;
// sm_70+. What was there before.
KB_DEVICE uint32_t atom_relaxed_gpu_global_add_u32(uint32_t* dst, uint32_t value);

// PTX: red.relaxed.cta.shared::cta.add.u32 [dst], value;
// sm_70+. To the CTA's own shared memory.
KB_DEVICE void red_relaxed_cta_shared_add_u32(uint32_t* dst, uint32_t value);

}  // namespace kb::ptx

#include "red.inl"
