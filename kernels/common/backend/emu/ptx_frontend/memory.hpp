// Windows, loads, stores and atomics (PTX ISA 9.1, 5.1, 9.7.9, 9.7.13). Generic and global
// addresses are host pointers. A library for the checker announces each access to the runtime.
#pragma once

#include <cstring>

#include "narrow.hpp"
#include "runtime/api_core.hpp"
#include "runtime/api_ptx.hpp"
#include "runtime/options.hpp"

namespace px {

using emu::Order;
using emu::Scope;

PX Byte* own_shared() {
  return static_cast<Byte*>(emu::own_shared());
}
PX u32 shared_window() {
  return emu::own_shared_window();
}
PX Byte* shared_at(Byte* own, u32 window, u32 address) {
  if (address - window >= emu::kMaxSharedBytes) emu::no_shared_address();
  return own + (address - window);
}
PX Byte* cluster_at(u32 address) {
  return static_cast<Byte*>(emu::cluster_shared(address));
}
PX u32 to_shared(const void* pointer) {
  return emu::smem_address(pointer);
}
// A shared address as it is, in 64 bits, or a generic one.
PX u32 low_or_shared(const void* pointer) {
  const auto address = reinterpret_cast<u64>(pointer);
  return address >> 32 == 0 ? static_cast<u32>(address) : to_shared(pointer);
}
PX Byte* pointer(u64 address) {
  return reinterpret_cast<Byte*>(address);
}
PX u64 address_of(const void* pointer) {
  return reinterpret_cast<u64>(pointer);
}
template <typename... T>
u64 address_of(void (*function)(T...)) {
  return reinterpret_cast<u64>(function);
}
// A function by its address: a call of what is none ends the launch.
template <typename F>
F* function_at(u64 address) {
  return reinterpret_cast<F*>(address);
}
// An initializer that is an address; says that it is done.
PX bool put_address(void* place, u64 address) {
  std::memcpy(place, &address, sizeof address);
  return true;
}
PX u32 mapa(u32 address, u32 rank) {
  return emu::mapa(cluster_at(address), rank);
}

// An element in memory. Nothing here takes a local variable's address: g++ would make each of
// thousands of such variables a register by itself, after all else.
template <typename T>
struct __attribute__((packed, may_alias)) Element {
  T value;
};
template <typename T>
PX T element(const Byte* from, size_t index = 0) {
  return reinterpret_cast<const Element<T>*>(from)[index].value;
}

template <size_t bytes>
PX void announce_read([[maybe_unused]] const Byte* at) {
#ifdef KB_PTX_CHECK
  emu::weak_load(at, bytes);
#endif
}
template <size_t bytes>
PX void announce_cached([[maybe_unused]] const Byte* at, [[maybe_unused]] const char* what) {
#ifdef KB_PTX_CHECK
  emu::cached_load(at, bytes, what);
#endif
}
template <typename T, typename... Values>
PX void announce_write([[maybe_unused]] Byte* at, [[maybe_unused]] Values... values) {
#ifdef KB_PTX_CHECK
  constexpr size_t kBytes = sizeof(T) * sizeof...(values);
  size_t index = 0;
  emu::weak_store(at, kBytes, ((element<T>(at, index++) == static_cast<T>(values)) & ...));
#endif
}

// An access of `bytes` to local memory, which is `local` and has `extent` bytes; 0: unknown, since
// a function that is called may be given the address of its caller's.
template <size_t bytes>
PX Byte* own(Byte* at, [[maybe_unused]] const Byte* local, [[maybe_unused]] size_t extent) {
#ifdef KB_PTX_CHECK
  emu::own_access(at, bytes, local, extent);
#endif
  return at;
}
// A strong vector that is accessed element by element, and has to be aligned as a whole.
template <size_t bytes>
PX void aligned_vector(const Byte* at) {
  emu::vector_access(at, bytes);
}

// A thread's own memory, parameters, constants.
template <typename T>
PX T own_load(const Byte* from) {
  return element<T>(from);
}
template <typename T, typename... Values>
PX void own_store(Byte* to, Values... values) {
  size_t index = 0;
  ((reinterpret_cast<Element<T>*>(to)[index++].value = static_cast<T>(values)), ...);
}
// ld.global.nc.
template <size_t bytes>
PX void announce_read_only(const Byte* at) {
  announce_cached<bytes>(at, "a load by the read-only cache");
}
template <typename T>
PX T read_only_load(const Byte* from) {
  announce_read_only<sizeof(T)>(from);
  return element<T>(from);
}
template <typename T>
PX T load(const Byte* from) {
  announce_read<sizeof(T)>(from);
  return element<T>(from);
}
template <typename T, typename... Values>
PX void store(Byte* to, Values... values) {
  announce_write<T>(to, values...);
  own_store<T>(to, values...);
}

// Strong accesses.
template <typename T, int count>
struct Elements {
  T at[count];
};
// ld and st with .relaxed (or .volatile), .acquire, .release.
template <typename T, int count>
PX Elements<T, count> strong_load(const Byte* from, Order order, Scope scope,
                                  bool meeting = false) {
  const emu::StrongForm form{order, scope, meeting};
  if constexpr (count > 1) aligned_vector<count * sizeof(T)>(from);
  Elements<T, count> found;
  for (int i = 0; i < count; ++i) {
    found.at[i] = static_cast<T>(emu::strong_load(from + i * sizeof(T), sizeof(T), form));
  }
  return found;
}
template <typename T>
PX void strong_store(Byte* to, Order order, Scope scope, T value) {
  emu::strong_store(to, sizeof(T), value, {order, scope});
}

// Atomics.
namespace detail {

template <typename T>
struct AtomicOperands {
  T first, second;
};
template <typename T, typename Operation>
u64 updated(u64 old, const void* context) {
  using B = Bits<sizeof(T)>;
  const auto& operands = *static_cast<const AtomicOperands<T>*>(context);
  return __builtin_bit_cast(B, Operation{}(as<T>(static_cast<B>(old)), operands));
}
template <typename T, typename Operation>
PX T atomic(Byte* at, const emu::AtomicForm& form, const AtomicOperands<T>& operands, Operation) {
  constexpr auto kUpdate = updated<T, Operation>;
  const u64 old = emu::atomic_update(at, sizeof(T), form, kUpdate, &operands);
  return as<T>(static_cast<Bits<sizeof(T)>>(old));
}
template <typename T>
PX T plain_sum(T a, T b) {
  if constexpr (kInteger<T>) {
    return add(a, b);
  } else {
    return canonical(a + b);
  }
}
// Additions to global memory flush, as the memory's own adders do.
template <typename T>
PX T memory_sum(T a, T b) {
  if constexpr (kInteger<T>) {
    return add(a, b);
  } else {
    return canonical(flushed(flushed(a) + flushed(b)));
  }
}

}  // namespace detail

#define KB_PTX_ATOMIC(name, may_poll, expression)                                               \
  template <typename T>                                                                         \
  PX T atomic_##name(Byte* at, bool returns, Order order, Scope scope, T value, T other = {}) { \
    return detail::atomic(at, {order, scope, returns, may_poll},                                \
                          detail::AtomicOperands<T>{value, other},                              \
                          [](T old, const auto& given) -> T { return expression; });            \
  }
// What locks and flags are polled with: a failed compare, an exchange, a sum with zero.
KB_PTX_ATOMIC(add, true, detail::memory_sum(old, given.first))
// In shared memory subnormals of f32 stay (PTX: 9.7.13 atom).
KB_PTX_ATOMIC(add_shared, true, detail::plain_sum(old, given.first))
KB_PTX_ATOMIC(exch, true, ((void)old, given.first))
KB_PTX_ATOMIC(cas, true, old == given.first ? given.second : old)
KB_PTX_ATOMIC(min, false, min(old, given.first))
KB_PTX_ATOMIC(max, false, max(old, given.first))
KB_PTX_ATOMIC(and, false, old& given.first)
KB_PTX_ATOMIC(or, false, old | given.first)
KB_PTX_ATOMIC(xor, false, old ^ given.first)
KB_PTX_ATOMIC(inc, false, old >= given.first ? 0 : old + 1)
KB_PTX_ATOMIC(dec, false, old == 0 || old > given.first ? given.first : old - 1)
KB_PTX_ATOMIC(add_noftz, false, add_half<flags("")>(old, given.first))
KB_PTX_ATOMIC(min_noftz, false, min_half<flags("")>(old, given.first))
KB_PTX_ATOMIC(max_noftz, false, max_half<flags("")>(old, given.first))
#undef KB_PTX_ATOMIC

// Of 16 bytes.
PX b128 atomic_exch_16(Byte* at, bool returns, Order order, Scope scope, b128 value) {
  b128 old;
  emu::atomic_exchange_16(at, {order, scope, returns, true}, nullptr, &value, &old);
  return old;
}
PX b128 atomic_cas_16(Byte* at, bool returns, Order order, Scope scope, b128 compared, b128 value) {
  b128 old;
  emu::atomic_exchange_16(at, {order, scope, returns, true}, &compared, &value, &old);
  return old;
}
PX void discard(Byte* at) {
  emu::discard(at);
}

}  // namespace px
