// OS threads of a launch whose clusters can do nothing until a cluster of another one writes to
// memory: when all are idle, none ever will.
#pragma once

#include <cstdint>

namespace kb::emu {

class Runner;

// A number that changes whenever an OS thread begins or ends to do something.
uint64_t activity();
// In a pass over its clusters, since activity() was `since`, a runner could do nothing. Whether
// that holds for all `running` ones, and none has done anything since their passes.
bool all_idle(const Runner& runner, uint64_t since, uint32_t running);
// It goes on, or has ended.
void busy(const Runner& runner);
void forget_idle();
uint32_t idle_runners();

}  // namespace kb::emu
