#pragma once

#include "rt_common.inl"

namespace kb::rt {

namespace detail {

template <typename... Values>
void launch_values(const void* kernel, const LaunchConfig& config, Values... values) {
  void* pointers[] = {static_cast<void*>(&values)..., nullptr};
  LaunchPlan(kernel, config).launch(kernel, pointers);
}

}  // namespace detail

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchConfig& config, Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "one argument for each parameter");
  detail::launch_values<Parameters...>(reinterpret_cast<const void*>(kernel), config,
                                       static_cast<Arguments&&>(arguments)...);
}

}  // namespace kb::rt
