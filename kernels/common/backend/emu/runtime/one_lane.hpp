// Operations that one elected thread starts (PTX ISA 9.1, 9.7.9 and 9.7.16): without an election 32
// lanes start 32 of them.
#pragma once

#include "core.hpp"

namespace kb::emu {

constexpr uint64_t mix(uint64_t hash, uint64_t value) {
  return (hash ^ value) * 0x9e3779b97f4a7c15u;
}

// Finds operations that several lanes of a warp execute for want of an election: the first
// execution of one place in the code by two lanes, with the same operands.
void check_one_lane(uint64_t operands, Pc pc, const char* what);

}  // namespace kb::emu
