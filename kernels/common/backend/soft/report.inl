// A fault's record as one line, on the host.
#pragma once

#include <cstdio>

#include "state.inl"

namespace kb::soft {

template <typename... Values>
std::string text(const char* format, Values... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

// What happened, to be put behind "warp w of CTA c".
inline std::string describe_fault(Fault fault, uint32_t value, uint32_t other) {
  constexpr auto kSeconds = static_cast<unsigned>(kWaitLimitNs / 1'000'000'000);
  switch (fault) {
    case Fault::kNone:
      break;
    case Fault::kMbarrierWait:
      return text("waited %u s for phase parity %u of the mbarrier at offset %#x of SharedStorage",
                  kSeconds, other, value);
    case Fault::kGlobalWait:
      return text("waited %u s for a counter in global memory to reach %u; it is %u", kSeconds,
                  value, other);
    case Fault::kAllocationWait:
      return text("waited %u s for %u free columns of tensor memory", kSeconds, value);
    case Fault::kAllocationSize:
      return text("allocates %u columns of tensor memory: not a power of two from 32 to 512",
                  value);
    case Fault::kAllocationGrows:
      return text("allocates %u columns of tensor memory after %u: sizes must not increase", value,
                  other);
    case Fault::kAfterRelinquish:
      return text("allocates %u columns of tensor memory after giving up the right to", value);
    case Fault::kDeallocation:
      return text("deallocates %u columns of tensor memory at %#x, which is no allocation", other,
                  value);
    case Fault::kColumns:
      return text("uses %u columns of tensor memory at %#x, not all allocated", other, value);
    case Fault::kLanes:
      return text("uses tensor memory at %#x: lanes that are not its own", value);
    case Fault::kAddressDiffers:
      return text("uses tensor memory at %#x in one lane and at %#x in lane 0", value, other);
    case Fault::kScaleAddress:
      return text("names scales at %#x of tensor memory: lane not 0, or column not a multiple of 4",
                  value);
    case Fault::kScaleReplicas:
      return text("multiplies with scales in column %u, lane %u that differ between lane groups",
                  value, other);
    case Fault::kInstruction:
      return text("multiplies with instruction descriptor %#x, which the soft executor lacks",
                  value);
    case Fault::kSmemDescriptor:
      return text("uses shared memory descriptor 0x%08x%08x, which is not valid here", other,
                  value);
    case Fault::kSeveralLanes:
      return text("starts a tensor operation in several lanes (mask %#x)", value);
    case Fault::kRequestAfterDecline:
      return "requests a cluster after a request that was declined";
    case Fault::kPeerBarrier:
      return text(
          "loads by TMA towards the mbarrier at %#x of its peer: the soft executor cannot, a "
          "Hopper GPU signals the destination's CTA",
          value);
  }
  return "ended the launch without a reason";
}

inline bool is_wait(Fault fault) {
  return fault == Fault::kMbarrierWait || fault == Fault::kGlobalWait ||
         fault == Fault::kAllocationWait;
}

inline std::string describe(const Record& record) {
  return text("%s: warp %u (lane %u) of CTA %u ", is_wait(record.fault) ? "hang" : "fault",
              record.thread / 32, record.thread % 32, record.cta) +
         describe_fault(record.fault, record.value[0], record.value[1]);
}

}  // namespace kb::soft
