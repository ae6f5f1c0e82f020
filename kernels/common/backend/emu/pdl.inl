#pragma once

#include "runtime/api_core.hpp"

namespace kb::ptx {

KB_DEVICE void griddepcontrol_wait() {
  emu::griddepcontrol_wait();
}

KB_DEVICE void griddepcontrol_launch_dependents() {
  emu::griddepcontrol_launch_dependents();
}

}  // namespace kb::ptx
