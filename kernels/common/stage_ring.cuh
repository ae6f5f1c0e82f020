// The barriers of a ring of stages.
#pragma once

#include "ptx/mbarrier.cuh"

namespace kb {

// By one thread: initializes shared.full, for 1 arrival (of who fills the stage) and the bytes
// that it announces, and shared.empty, for as many arrivals as `commits` say that a stage has been
// read. A fence and a CTA barrier come before their first use.
template <typename Shared>
KB_DEVICE void init_stages(Shared& shared, uint32_t commits) {
  constexpr uint32_t kStages = sizeof(shared.full) / sizeof(Mbarrier);
  for (uint32_t s = 0; s < kStages; ++s) {
    ptx::mbarrier_init(&shared.full[s], 1);
    ptx::mbarrier_init(&shared.empty[s], commits);
  }
}

}  // namespace kb
