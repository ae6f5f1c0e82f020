// Asynchronous operations between their issue and their completion: copies, products, commits. The
// schedule in runner.cpp draws when each completes.
#pragma once

#include <functional>

#include "knowledge.hpp"
#include "options.hpp"

namespace kb::emu {

using Task = std::function<void()>;
// Runs `task` now, or, when checking, at a moment that the schedule draws. Unordered tasks run in
// any order; in-order ones after those of the same warp and pipe. A task runs on the scheduler: it
// must not suspend and self() is not valid inside. `pc`: whose task it is. `outlives`: it may run
// after its CTA's exit.
void submit(Pc pc, Task task, bool outlives = false);
void submit_in_order(Pipe pipe, Pc pc, Task task);
// Runs everything that is pending in the running warp's pipe, then returns (e.g. for wait::ld).
bool pipe_idle(const Warp& warp, Pipe pipe);

// What must hold when a CTA exits (TMEM freed, groups waited for): called once per CTA,
// after its last thread has returned.
void check_tma_at_exit(Cta& cta);     // tma.cpp
void check_copies_at_exit(Cta& cta);  // cp_async.cpp
void check_tensor_at_exit(Cta& cta);  // tcgen05.cpp
// Called when a CTA starts, on fresh state.
void start_tma(Cta& cta);     // tma.cpp
void start_tensor(Cta& cta);  // tcgen05.cpp

}  // namespace kb::emu
