// Stages of weights that are on their way while a CTA routes: they delay what routing reads.
#pragma once

#include "kb.cuh"

namespace kb::step {

template <uint32_t kTokens>
inline constexpr uint32_t kPace = 3;

namespace sorted {
template <uint32_t kTokens>
inline constexpr uint32_t kPace = 2;
}  // namespace sorted

}  // namespace kb::step
