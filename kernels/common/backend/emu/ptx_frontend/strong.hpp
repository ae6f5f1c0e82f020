// Strong loads and stores of vectors, which are made at once.
#pragma once

#include "memory.hpp"

namespace px {

template <typename T, int count>
PX Elements<T, count> load_together(const Byte* from, Order order, Scope scope) {
  Elements<T, count> found;
  emu::strong_load_vector(from, sizeof found, {order, scope}, &found);
  return found;
}
template <typename T, typename... Values>
PX void store_together(Byte* to, Order order, Scope scope, Values... values) {
  const Elements<T, sizeof...(values)> given = {{static_cast<T>(values)...}};
  emu::strong_store_vector(to, sizeof given, &given, {order, scope});
}

}  // namespace px
