#pragma once

namespace kb {

template <typename T>
KB_DEVICE T& shared_storage() {
  static_assert(alignof(T) <= 1024, "dynamic shared memory is aligned to 1024 bytes");
  extern __shared__ __align__(1024) unsigned char kb_dynamic_shared_memory[];
  return *reinterpret_cast<T*>(kb_dynamic_shared_memory);
}

}  // namespace kb
