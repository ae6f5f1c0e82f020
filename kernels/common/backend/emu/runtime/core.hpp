// The emulator's core, for the files that model units of the hardware: DESIGN.md beside this file
// says how the parts work together. Kernels see none of this: their ptx functions call the
// api_*.hpp functions.
//
// One cluster runs on one OS thread. Switching happens only inside these functions, so everything
// here is sequential per cluster; what clusters share (global memory, Launch) is noted.
#pragma once

#include "barrier.hpp"
#include "facts.hpp"
#include "finding.hpp"
#include "grids.hpp"
#include "knowledge.hpp"
#include "machine.hpp"
#include "options.hpp"
#include "shadow.hpp"
#include "tasks.hpp"
#include "wait.hpp"
