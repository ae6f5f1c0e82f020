// Asynchronous copies by each thread: PTX ISA 9.1, 9.7.9 (cp.async). They are generic-proxy
// accesses: wgmma and TMA read the result only after fence_proxy_async.
#pragma once

#include "address.cuh"

namespace kb::ptx {

// PTX: cp.async.cg.shared.global [dst], [src], 16, source_bytes;
// sm_80+ · any thread. Copies source_bytes (0 … 16) through L2 and zeroes the rest of 16 bytes;
// both sides 16-byte aligned. Unordered until waited for.
KB_DEVICE void cp_async_cg_shared_global_16(void* dst, const void* src, uint32_t source_bytes = 16);

// PTX: cp.async.ca.shared.global [dst], [src], 4, source_bytes;
// sm_80+ · any thread. Copies source_bytes (0 … 4) through L1 and zeroes the rest of 4 bytes.
KB_DEVICE void cp_async_ca_shared_global_4(void* dst, const void* src, uint32_t source_bytes = 4);

// PTX: cp.async.commit_group;
// sm_80+ · any thread. Makes a group of the thread's copies since the last one.
KB_DEVICE void cp_async_commit_group();

// PTX: cp.async.wait_group kPending;
// sm_80+ · any thread. Returns when at most kPending of the thread's newest groups are incomplete;
// the others' bytes are visible to this thread, and to others after a barrier.
template <uint32_t kPending>
KB_DEVICE void cp_async_wait_group();

// PTX: cp.async.mbarrier.arrive.noinc.shared::cta.b64 [bar];
// sm_80+ · any thread. Arrives once on bar when the thread's copies so far have completed. The
// arrival has to be counted by mbarrier_init.
KB_DEVICE void cp_async_mbarrier_arrive_noinc(Mbarrier* bar);

}  // namespace kb::ptx

#include "cp_async.inl"
