// Kernels for sm_100a on an sm_90a GPU: what that GPU has is native, tensor memory and Cluster
// Launch Control are in software. For correctness only.
#pragma once

#include "../sm90a/qualifiers.inl"

namespace kb {

// The executor, as the default of the template parameter that delays kAbsent's assertion.
struct Target {};

}  // namespace kb
