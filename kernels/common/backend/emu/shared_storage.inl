#pragma once

#include "runtime/api_core.hpp"

namespace kb {

template <typename T>
KB_DEVICE T& shared_storage() {
  static_assert(alignof(T) <= 1024, "dynamic shared memory is aligned to 1024 bytes");
  return *static_cast<T*>(emu::shared_storage(sizeof(T), __PRETTY_FUNCTION__));
}

}  // namespace kb
