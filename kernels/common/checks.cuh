// What a group GEMM step asks of a call, checked on the host before anything is enqueued.
#pragma once

#include "group_gemm.cuh"

namespace kb {

enum class NkLimit { kPerGroup, kOneForAll };

namespace detail {

inline void require(bool holds, const std::string& what) {
  if (!holds) throw InvalidCall(what);
}

// TMA, bulk copies and 16-byte stores need it of every operand.
inline void check_operand(const char* name, uint64_t address, const std::string& group) {
  require(address != 0 && address % 16 == 0,
          group + ": " + name + " is null or not aligned to 16 bytes");
}

}  // namespace detail

// Throws InvalidCall with the first limit that the call breaks.
//   k_multiple   K of every group is a multiple of it: the step's tile along K
//   nk           whether groups may differ in N and K
inline void check_call(const GroupGemmCall& call, uint32_t k_multiple, NkLimit nk) {
  detail::require(call.group_count >= 1 && call.group_count <= kMaxGroups,
                  std::to_string(call.group_count) + " groups: the step takes 1 to " +
                      std::to_string(kMaxGroups));
  for (int g = 0; g < call.group_count; ++g) {
    const std::string group = "group " + std::to_string(g);
    detail::require(call.m[g] > 0, group + ": m = " + std::to_string(call.m[g]) + ", not positive");
    detail::require(call.n[g] > 0 && call.n[g] % 8 == 0,
                    group + ": n = " + std::to_string(call.n[g]) + ", not a multiple of 8");
    detail::require(call.k[g] > 0 && call.k[g] % static_cast<int32_t>(k_multiple) == 0,
                    group + ": k = " + std::to_string(call.k[g]) + ", not a multiple of " +
                        std::to_string(k_multiple));
    detail::require(
        nk == NkLimit::kPerGroup || (call.n[g] == call.n[0] && call.k[g] == call.k[0]),
        group + ": n or k differs from group 0: the step takes one N and K for all groups");
    detail::check_operand("a", call.a[g], group);
    detail::check_operand("b", call.b[g], group);
    detail::check_operand("c", call.c[g], group);
    detail::check_operand("sfa", call.sfa[g], group);
    detail::check_operand("sfb", call.sfb[g], group);
  }
}

}  // namespace kb
