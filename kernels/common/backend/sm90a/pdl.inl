#pragma once

namespace kb::ptx {

KB_DEVICE void griddepcontrol_wait() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

KB_DEVICE void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace kb::ptx
