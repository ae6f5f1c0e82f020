// What the scheduler asks of the launch that it is part of.
#pragma once

#include "core.hpp"

namespace kb::emu {

// OS threads that run clusters.
uint32_t os_threads_running();
// Drops the records of accesses of a cluster that starts.
void forget_accesses(Cluster& cluster);

}  // namespace kb::emu
