// Host: memory of PartialSums that outlives the call.
#pragma once

#include "kept_buffer.cuh"
#include "partial_sums.cuh"

namespace kb {

// For static variables of a step's host path, whose calls follow each other on a stream.
template <typename Parts>
class PartSumsMemory {
 public:
  // Memory of `slots` slots, flags zeroed on `stream` when it is new: every call leaves them so.
  Parts reserve(size_t slots, rt::Stream stream) {
    const size_t flags = slots * Parts::kSlotFlags;
    const Parts parts = {sums_.reserve(slots * Parts::kSlotSums), ready_.reserve(flags)};
    if (flags > zeroed_) rt::memset_async(parts.ready, 0, flags * sizeof *parts.ready, stream);
    zeroed_ = std::max(zeroed_, flags);
    return parts;
  }

 private:
  DeviceBuffer<Sums> sums_;
  DeviceBuffer<uint32_t> ready_;
  size_t zeroed_ = 0;
};

}  // namespace kb
