// Facts of the hardware that can be broken one at a time, to prove that right kernels then fail: of
// TMA boxes and descriptors (PTX ISA 9.1, 5.5, 9.7.16) and of what lies in tensor memory (9.7.16).
#pragma once

#include <cstdint>

namespace kb::emu {

enum class Fact : uint32_t {
  kNone = 0,
  kNoSwizzle,            // TMA leaves the box unswizzled
  kSwizzleRelative,      // swizzles count from a tile's start, not from absolute addresses
  kSwizzleRowBit,        // row bits taken one higher
  kScaleABytesReversed,  // byte order of SFA within a 32-bit cell
  kScaleBBytesReversed,
  kScaleRolesExchanged,  // x % 32 and x / 32 exchanged between lane and column
  kCopyRowsTimesFour,    // tcgen05.cp: row i to lanes 4 i …
  kScaleBColumnStep,     // SFB's columns two apart
  kScalesExchanged,      // SFA and SFB
  kCode7Is5,             // e2m1 code 7 is 5
  kScaleBias,            // scales twice as large
  kStrideHalved,         // SBO
  kOffsetsExchanged,     // LBO and SBO
  kAccumulateIgnored,    // enable-input-d
  kScaleBOffsetIgnored,  // SFB's column offset: seen by tiles of N = 64 only
  kLoad16x256Exchanged,  // tcgen05.ld.16x256b: register bits exchanged
  kLoad32x32LaneOrder,   // tcgen05.ld.32x32b: lanes in another order
  kPairBInterleaved,     // cta_group::2: halves of B interleaved
  kPairCopyIssuerOnly,   // cta_group::2: cp in the issuing CTA only
  kPairCopyFromLeader,   // cta_group::2: cp from the leader's memory for both
  kCount,
};
bool broken(Fact fact);

}  // namespace kb::emu
