// Native code for sm_90a.
#pragma once

#include "qualifiers.inl"

namespace kb {

// The executor, as the default of the template parameter that delays kAbsent's assertion.
struct Target {};

}  // namespace kb
