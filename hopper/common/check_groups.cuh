// What a Hopper step asks of a call: as kernels/common/checks.cuh, but groups may have no tokens,
// and a step may take more groups.
#pragma once

#include "checks.cuh"

namespace kb {

inline constexpr int kMostGroups = 64;  // of a call

// Throws InvalidCall with the first limit that the call breaks. N and K may differ by group.
inline void check_groups(const GroupGemmCall& call, uint32_t k_multiple,
                         int max_groups = kMaxGroups) {
  detail::require(call.group_count >= 1 && call.group_count <= max_groups,
                  std::to_string(call.group_count) + " groups: the step takes 1 to " +
                      std::to_string(max_groups));
  for (int g = 0; g < call.group_count; ++g) {
    const std::string group = "group " + std::to_string(g);
    const int32_t m = call.m[g], n = call.n[g], k = call.k[g];
    detail::require(m >= 0, group + ": m = " + std::to_string(m) + ", negative");
    detail::require(n > 0 && n % 8 == 0,
                    group + ": n = " + std::to_string(n) + ", not a multiple of 8");
    detail::require(
        k > 0 && k % static_cast<int32_t>(k_multiple) == 0,
        group + ": k = " + std::to_string(k) + ", not a multiple of " + std::to_string(k_multiple));
    if (m > 0) detail::check_operand("a", call.a[g], group);
    detail::check_operand("b", call.b[g], group);
    if (m > 0) detail::check_operand("c", call.c[g], group);
    if (m > 0) detail::check_operand("sfa", call.sfa[g], group);
    detail::check_operand("sfb", call.sfb[g], group);
  }
}

}  // namespace kb
