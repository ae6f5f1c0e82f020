#pragma once

#include <type_traits>

#include "runtime/api_core.hpp"

namespace kb::ptx {

KB_DEVICE uint32_t cluster_ctarank() {
  return emu::cluster_ctarank();
}
KB_DEVICE uint32_t cluster_nctarank() {
  return emu::cluster_nctarank();
}
KB_DEVICE uint32_t cluster_ctaid_x() {
  return emu::cluster_ctarank();
}
KB_DEVICE uint32_t clusterid_x() {
  return emu::clusterid_x();
}

template <typename Sem>
KB_DEVICE void barrier_cluster_arrive(Sem) {
  emu::barrier_cluster_arrive(std::is_same_v<Sem, SemRelease>);
}
KB_DEVICE void barrier_cluster_wait(SemAcquire) {
  emu::barrier_cluster_wait();
}

template <typename T>
KB_DEVICE ClusterAddress<T> mapa(const T* pointer, uint32_t rank) {
  return {emu::mapa(pointer, rank)};
}

template <typename T>
KB_DEVICE uint32_t getctarank(ClusterAddress<T> address) {
  return address.bits >> 24;
}

template <typename T>
KB_DEVICE void st_shared_cluster(ClusterAddress<T> address, T value) {
  static_assert(sizeof(T) == 4, "a 32-bit type");
  emu::st_shared_cluster(address.bits, __builtin_bit_cast(uint32_t, value));
}

template <typename T>
KB_DEVICE T ld_shared_cluster(ClusterAddress<T> address) {
  static_assert(sizeof(T) == 4, "a 32-bit type");
  return __builtin_bit_cast(T, emu::ld_shared_cluster(address.bits));
}

template <typename T>
KB_DEVICE void st_async_shared_cluster(ClusterAddress<T> address, T value,
                                       ClusterAddress<Mbarrier> bar) {
  static_assert(sizeof(T) == 4, "a 32-bit type");
  emu::st_async_shared_cluster(address.bits, &value, sizeof value, bar.bits);
}

}  // namespace kb::ptx
