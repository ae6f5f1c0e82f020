#pragma once

#include "runtime/api_tma.hpp"

namespace kb::ptx {

KB_DEVICE void cp_async_cg_shared_global_16(void* dst, const void* src, uint32_t source_bytes) {
  emu::async_copy(dst, src, 16, source_bytes);
}

KB_DEVICE void cp_async_ca_shared_global_4(void* dst, const void* src, uint32_t source_bytes) {
  emu::async_copy(dst, src, 4, source_bytes);
}

KB_DEVICE void cp_async_commit_group() {
  emu::async_copy_commit_group();
}

template <uint32_t kPending>
KB_DEVICE void cp_async_wait_group() {
  emu::async_copy_wait_group(kPending);
}

KB_DEVICE void cp_async_mbarrier_arrive_noinc(Mbarrier* bar) {
  emu::async_copy_arrive(bar, true);
}

}  // namespace kb::ptx
