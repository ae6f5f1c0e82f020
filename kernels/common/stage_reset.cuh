// The barriers of a ring of stages, given up so that they can be initialized again.
#pragma once

#include "ptx/mbarrier.cuh"

namespace kb {

// By the thread that will initialize them, when every stage is empty and no arrival is on its way:
// invalidates shared.full and shared.empty. A live barrier must not be initialized (PTX ISA 9.1,
// 9.7.13.15).
template <typename Shared>
KB_DEVICE void invalidate_stages(Shared& shared) {
  constexpr uint32_t kStages = sizeof(shared.full) / sizeof(Mbarrier);
  for (uint32_t s = 0; s < kStages; ++s) {
    ptx::mbarrier_inval(&shared.full[s]);
    ptx::mbarrier_inval(&shared.empty[s]);
  }
}

}  // namespace kb
