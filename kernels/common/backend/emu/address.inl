#pragma once

#include "runtime/api_core.hpp"

namespace kb::ptx {

KB_DEVICE uint32_t smem_address(const void* pointer) {
  return emu::smem_address(pointer);
}

}  // namespace kb::ptx
