#pragma once

namespace kb::ptx {

KB_DEVICE uint32_t smem_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

namespace detail {

KB_DEVICE uint64_t global_address(const void* pointer) {
  return static_cast<uint64_t>(__cvta_generic_to_global(pointer));
}

KB_DEVICE uint64_t generic_address(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

}  // namespace detail

}  // namespace kb::ptx
