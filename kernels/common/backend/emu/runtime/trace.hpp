// What a launch does, event by event, for `check --trace` and `--at`: primitives, waits, operations
// between issue and completion, barriers, findings. Models nothing of PTX by itself.
#pragma once

#include <deque>

#include "options.hpp"
#include "tasks.hpp"

namespace kb::emu {

struct Wait;

// Off but for launches between kb_emu_trace and kb_emu_configure; those run on one OS thread.
// `tracing` itself stands in options.hpp, for KB_EMU_PC.

// The running thread waits; it goes on. A wait that only gives way is none.
void trace_wait(const Wait& wait);
void trace_resumed();
// A task that says when it runs; `pipe`: of its warp, or -1 for a copy or another unordered one.
Task traced(Task task, int pipe);
// Barriers that are not as they were last.
void trace_barriers(const std::deque<Cluster>& clusters);
// The finding that is number `index` of the report.
void trace_finding(size_t index);
void forget_trace();

}  // namespace kb::emu
