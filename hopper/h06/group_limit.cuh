// How many groups a call of the step may have: entries of the tables in the kernels' arguments.
#pragma once

#include "group_gemm.cuh"

namespace kb::step {

inline constexpr int kGroups = kMaxGroups;

}  // namespace kb::step
