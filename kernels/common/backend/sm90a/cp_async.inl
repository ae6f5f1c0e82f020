#pragma once

namespace kb::ptx {

KB_DEVICE void cp_async_cg_shared_global_16(void* dst, const void* src, uint32_t source_bytes) {
  // clang-format off
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(smem_address(dst)), "l"(detail::global_address(src)), "r"(source_bytes)
               : "memory");
  // clang-format on
}

KB_DEVICE void cp_async_ca_shared_global_4(void* dst, const void* src, uint32_t source_bytes) {
  // clang-format off
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
               :: "r"(smem_address(dst)), "l"(detail::global_address(src)), "r"(source_bytes)
               : "memory");
  // clang-format on
}

KB_DEVICE void cp_async_commit_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <uint32_t kPending>
KB_DEVICE void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

KB_DEVICE void cp_async_mbarrier_arrive_noinc(Mbarrier* bar) {
  // clang-format off
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];"
               :: "r"(smem_address(bar)) : "memory");
  // clang-format on
}

}  // namespace kb::ptx
