// Stackful coroutines: one per CUDA thread (PTX ISA 9.1, 2.2), switched by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kb::emu {

struct Fiber {
  void* stack_pointer = nullptr;
  std::byte* stack = nullptr;  // lowest usable byte; the page below it is a guard
};

inline constexpr size_t kStackBytes = 256 * 1024;

// Stacks for `count` fibers with guard pages between them; throws std::bad_alloc.
class Stacks {
 public:
  explicit Stacks(size_t count);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  size_t count() const { return count_; }
  std::byte* at(size_t index) const;
  // Whether an address lies in the guard page below some stack.
  bool in_guard(const void* address) const;

 private:
  std::byte* base_ = nullptr;
  size_t count_ = 0;
  size_t guarded_ = 0;
};

// Prepares `fiber` to run `entry` when it is first switched to; entry must not return.
void prepare(Fiber& fiber, void (*entry)());

// Saves the running context in *from and continues at `to`.
extern "C" void kb_emu_switch(void** from, void* to);

}  // namespace kb::emu
