#pragma once

#include "text.inl"

namespace kb::ptx {

namespace detail {

template <typename T>
KB_DEVICE uint32_t word_of(T value) {
  static_assert(sizeof(T) == 4, "a 32-bit type");
  return __builtin_bit_cast(uint32_t, value);
}

}  // namespace detail

KB_DEVICE uint32_t cluster_ctarank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

KB_DEVICE uint32_t cluster_nctarank() {
  uint32_t count;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
  return count;
}

KB_DEVICE uint32_t cluster_ctaid_x() {
  uint32_t x;
  asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(x));
  return x;
}

KB_DEVICE uint32_t clusterid_x() {
  uint32_t x;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(x));
  return x;
}

template <typename Sem>
KB_DEVICE void barrier_cluster_arrive(Sem) {
  asm volatile("barrier.cluster.arrive.%0.aligned;" ::"C"(detail::Text<Sem>::kValue) : "memory");
}

KB_DEVICE void barrier_cluster_wait(SemAcquire) {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

template <typename T>
KB_DEVICE ClusterAddress<T> mapa(const T* pointer, uint32_t rank) {
  ClusterAddress<T> mapped;
  // clang-format off
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(mapped.bits) : "r"(smem_address(pointer)), "r"(rank));
  // clang-format on
  return mapped;
}

template <typename T>
KB_DEVICE uint32_t getctarank(ClusterAddress<T> address) {
  uint32_t rank;
  asm("getctarank.shared::cluster.u32 %0, %1;" : "=r"(rank) : "r"(address.bits));
  return rank;
}

template <typename T>
KB_DEVICE void st_shared_cluster(ClusterAddress<T> address, T value) {
  // clang-format off
  asm volatile("st.shared::cluster.b32 [%0], %1;"
               :: "r"(address.bits), "r"(detail::word_of(value)) : "memory");
  // clang-format on
}

template <typename T>
KB_DEVICE T ld_shared_cluster(ClusterAddress<T> address) {
  static_assert(sizeof(T) == 4, "a 32-bit type");
  uint32_t word;
  // clang-format off
  asm volatile("ld.shared::cluster.b32 %0, [%1];" : "=r"(word) : "r"(address.bits) : "memory");
  // clang-format on
  return __builtin_bit_cast(T, word);
}

template <typename T>
KB_DEVICE void st_async_shared_cluster(ClusterAddress<T> address, T value,
                                       ClusterAddress<Mbarrier> bar) {
  // clang-format off
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
               :: "r"(address.bits), "r"(detail::word_of(value)), "r"(bar.bits) : "memory");
  // clang-format on
}

}  // namespace kb::ptx
