// Native code for sm_100a.
#pragma once

#include "../sm90a/qualifiers.inl"

namespace kb {

// The executor, as the default of the template parameter that delays kAbsent's assertion.
struct Target {};

}  // namespace kb
