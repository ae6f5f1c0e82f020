// Programmatic dependent launch: PTX ISA 9.1, 9.7.13 (griddepcontrol).
#pragma once

#include "types.cuh"

namespace kb::ptx {

// PTX: griddepcontrol.wait;
// sm_90+ · every thread that will touch what an earlier grid of the stream writes. Returns when the
// grids this one depends on have completed and their writes are visible. Without a dependent launch
// it does nothing.
KB_DEVICE void griddepcontrol_wait();

// PTX: griddepcontrol.launch_dependents;
// sm_90+ · one thread of each CTA is enough. The dependent grid may start once every CTA has issued
// it or exited. Orders nothing: the dependent grid still has to griddepcontrol_wait.
KB_DEVICE void griddepcontrol_launch_dependents();

}  // namespace kb::ptx

#include "pdl.inl"
