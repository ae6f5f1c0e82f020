// Grids that overlap: those of one stream by programmatic dependent launch (PTX ISA 9.1, 9.7.13,
// griddepcontrol), those of different streams until the host waits. Grids run one after another
// here; what may overlap on hardware follows from who triggered and who waited, or from the
// streams, and is found on every schedule.
//
// griddepcontrol.wait: the prerequisite grid has completed and its accesses are visible. It says
// nothing of the grids before that one, unless the prerequisite has waited for them itself.
// griddepcontrol.launch_dependents: the dependent grid may start once every CTA has issued it or
// exited. It orders nothing.
#include "grids.hpp"

#include <algorithm>

#include "api_core.hpp"
#include "assumptions.hpp"
#include "core.hpp"
#include "rt.cuh"
#include "timing.hpp"

namespace kb::emu {

namespace {

// What is kept of the grid that was launched last: its dependents depend on it.
struct Previous {
  void* stream = nullptr;
  uint64_t serial = 0;  // 0: none that a grid could overlap with
  uint64_t open_unwaited = 0;
  uint64_t open_waited = 0;
  bool waited = false;
  bool triggered = false;
  bool started_after_wait = false;
};
Previous previous;

// Streams of the grids since the host last waited, the first of which has that serial.
std::vector<void*> streams;
uint64_t first_serial = 0;
bool several_streams = false;

void order_streams(Launch& launch, rt::Stream stream) {
  launch.stream = stream.handle;
  launch.streams_since = launch.serial;
  if (!checking()) return;
  if (streams.empty()) first_serial = launch.serial;
  streams.push_back(stream.handle);
  several_streams = several_streams || streams.front() != stream.handle;
  if (several_streams) launch.streams_since = first_serial;
}

}  // namespace

bool knows_wait(const Thread& thread) {
  const std::vector<Event>& waits = thread.cta->cluster->grid_waits;
  return std::any_of(waits.begin(), waits.end(), [&thread](const Event& wait) {
    return thread.knows.seen.covers(wait.component, wait.epoch);
  });
}

// Runtime: streams; work on different ones may overlap. cudaStreamSynchronize, blocking copies and
// frees make the host wait.
// Not modelled: a wait for one stream counts as one for all; copies and memsets of another stream
// are taken for ordered; events.
void host_waited() {
  streams.clear();
  several_streams = false;
}

bool on_other_stream(const Launch& launch, uint64_t serial) {
  return serial >= launch.streams_since && serial < launch.serial &&
         streams[serial - first_serial] != launch.stream;
}

void report_streams(const GridAccess& last, bool writing, Pc pc, const char* what) {
  report({.kind = Class::kRace,
          .pc = pc,
          .other_pc = last.pc,
          .buffer = last.buffer,
          .text = std::string(what) + (writing ? " writes " : " reads ") + last.name +
                  " that a grid on another stream " + (last.wrote ? "writes" : "reads") +
                  ": nothing orders the two streams"});
}

// Which earlier grids may still run beside this one, before and after its wait.
void order_grid(Launch& launch, bool dependent, rt::Stream stream) {
  order_streams(launch, stream);
  launch.open_unwaited = launch.open_waited = launch.open_strictly = launch.serial;
  if (!dependent || previous.serial == 0 || previous.stream != stream.handle) return;
  const auto beside = [&launch](uint64_t open) {
    return open == previous.serial ? launch.serial : open;
  };
  // Once the previous grid has completed, so has all that it waited for.
  launch.open_waited = beside(previous.waited ? previous.open_waited : previous.open_unwaited);
  launch.open_unwaited = launch.open_strictly = launch.open_waited;
  if (!previous.triggered) return;
  launch.open_strictly = std::min(previous.serial, previous.open_unwaited);
  launch.open_unwaited = previous.started_after_wait
                             ? std::min(previous.serial, previous.open_waited)
                             : launch.open_strictly;
}

void grid_completed(const Launch& launch, rt::Stream stream) {
  previous = {.stream = stream.handle,
              .serial = launch.serial,
              .open_unwaited = launch.open_unwaited,
              .open_waited = launch.open_waited,
              .waited = launch.waited,
              .triggered = launch.triggered,
              .started_after_wait = launch.started_after_wait};
}

// A copy, a memset, or the caller: what comes next waits for all that came before.
void stream_operation() {
  previous = {};
}

// A CTA that exits without a trigger counts as one that triggers.
void cta_completed(Cta& cta) {
  Launch& launch = *cta.cluster->launch;
  if (!cta.triggered && !cta.cluster->grid_waits.empty()) launch.started_after_wait = true;
}

// PTX: griddepcontrol.wait (9.7.13): until all prerequisite grids have completed and their writes
// are visible.
void griddepcontrol_wait() {
  timed(Op::kGridWait, KB_EMU_CALLER);
  if (!checking()) return;
  interleave();
  Thread& thread = self();
  Cluster& cluster = *thread.cta->cluster;
  cluster.launch->waited = true;
  if (knows_wait(thread)) return;
  cluster.grid_waits.push_back({thread.component, thread.knows.seen.at[thread.component]});
}

// PTX: griddepcontrol.launch_dependents (9.7.13): dependents may start when every CTA has done it
// or has ended.
void griddepcontrol_launch_dependents() {
  timed(Op::kGridTrigger, KB_EMU_CALLER);
  if (!checking()) return;
  interleave();
  Thread& thread = self();
  Launch& launch = *thread.cta->cluster->launch;
  if (thread.cta->triggered) return;  // by the first invocation of a CTA
  thread.cta->triggered = true;
  launch.triggered = true;
  if (knows_wait(thread)) launch.started_after_wait = true;
}

// What the running thread is about to access was accessed by that earlier grid.
bool check_grids(const GridAccess& last, bool writing, Pc pc, const char* what) {
  const Thread& thread = self();
  const Launch& launch = *thread.cta->cluster->launch;
  if (last.serial < launch.open_strictly) return false;
  const bool waited = knows_wait(thread);
  const uint64_t open = waited ? launch.open_waited : launch.open_unwaited;
  if (last.serial < open) {
    if (!waited) assume(Assumption::kTriggersHandOn);
    return false;
  }
  const std::string done = last.wrote ? "writes" : "reads";
  report({.kind = Class::kRace,
          .pc = pc,
          .other_pc = last.pc,
          .buffer = last.buffer,
          .text = std::string(what) + (writing ? " writes " : " reads ") + last.name +
                  " that an earlier grid of the stream " + done + ", " +
                  (waited ? "and that griddepcontrol.wait does not wait for: a grid between them "
                            "never executed griddepcontrol.wait"
                          : "which may still run: no griddepcontrol.wait comes first")});
  return true;
}

}  // namespace kb::emu
