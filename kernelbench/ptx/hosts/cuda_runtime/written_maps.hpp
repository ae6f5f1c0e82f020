// See written_maps.cpp.
#pragma once

#include "state.hpp"

namespace kb::cuda {

// Whether these can be the words of a tensor map for the hardware.
bool is_written_map(const uint64_t (&words)[8]);
// The same map for the emulator. CUDA_ERROR_INVALID_VALUE if it breaks a rule of the driver's.
CUresult encode_written_map(CUtensorMap* map, const uint64_t (&words)[8]);

}  // namespace kb::cuda
