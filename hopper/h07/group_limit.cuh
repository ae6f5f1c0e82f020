// How many groups a call of the step may have: entries of the tables in the kernels' arguments.
#pragma once

#include "check_groups.cuh"

namespace kb::step {

inline constexpr int kGroups = kMostGroups;

}  // namespace kb::step
