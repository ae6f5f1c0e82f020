// Host: a call that outlives the caller's arrays, and can be compared with another one.
#pragma once

#include <algorithm>
#include <vector>

#include "group_gemm.cuh"

namespace kb {

struct KeptCall {
  std::vector<uint64_t> pointers;  // a, b, c, sfa and sfb of all groups
  std::vector<int32_t> extents;    // m, n and k, likewise
  void* stream;

  // Of a call that may still be refused: a negative number of groups is none here.
  explicit KeptCall(const GroupGemmCall& call) : stream(call.stream) {
    const auto count = static_cast<size_t>(std::max(call.group_count, 0));
    pointers.reserve(5 * count);
    extents.reserve(3 * count);
    for (const uint64_t* each : {call.a, call.b, call.c, call.sfa, call.sfb}) {
      pointers.insert(pointers.end(), each, each + count);
    }
    for (const int32_t* each : {call.m, call.n, call.k}) {
      extents.insert(extents.end(), each, each + count);
    }
  }
  friend bool operator==(const KeptCall&, const KeptCall&) = default;

  // As the caller had it; valid as long as this object.
  GroupGemmCall call() const {
    const size_t count = extents.size() / 3;
    const uint64_t* const at = pointers.data();
    const int32_t* const sizes = extents.data();
    return {.group_count = static_cast<int32_t>(count),
            .a = at,
            .b = at + count,
            .c = at + 2 * count,
            .sfa = at + 3 * count,
            .sfb = at + 4 * count,
            .m = sizes,
            .n = sizes + count,
            .k = sizes + 2 * count,
            .stream = stream};
  }
};

}  // namespace kb
