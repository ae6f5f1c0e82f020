// What the scheduler asks of the launch that it is part of.
#pragma once

#include "core.hpp"

namespace kb::emu {

// Whether clusters of other OS threads still make progress that this one can wait for.
bool others_run();
// Drops the records of accesses of a cluster that starts.
void forget_accesses(Cluster& cluster);

}  // namespace kb::emu
