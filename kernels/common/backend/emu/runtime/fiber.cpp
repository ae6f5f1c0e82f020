// Context switches and stacks of fibers: what stands for a CUDA thread's registers and local memory
// (PTX ISA 9.1, 2.2 and 5.1). A stack that overflows faults in its guard page.
#include "fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>

namespace kb::emu {

namespace {

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t slot_bytes() {
  return kStackBytes + page_bytes();
}

}  // namespace

// Callee-saved registers only: the switch is an ordinary call for the compiler. Floating-point
// control words are never changed by kernels.
#if defined(__x86_64__)
asm(R"(
.text
.globl kb_emu_switch
.type kb_emu_switch,@function
kb_emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size kb_emu_switch,.-kb_emu_switch
)");

void prepare(Fiber& fiber, void (*entry)()) {
  auto* top = reinterpret_cast<void**>(fiber.stack + kStackBytes);
  // At entry the stack is 8 bytes off a multiple of 16, as after a call: this is its return
  // address.
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  fiber.stack_pointer = top;
}
#elif defined(__aarch64__)
asm(R"(
.text
.globl kb_emu_switch
.type kb_emu_switch,%function
kb_emu_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size kb_emu_switch,.-kb_emu_switch
)");

void prepare(Fiber& fiber, void (*entry)()) {
  auto* top = reinterpret_cast<void**>(fiber.stack + kStackBytes - 160);
  for (int i = 0; i < 20; ++i) top[i] = nullptr;
  top[11] = reinterpret_cast<void*>(entry);  // x30
  fiber.stack_pointer = top;
}
#else
#error "the emulator's context switch is written for x86-64 and aarch64"
#endif

// Stacks: one mapping for all; pages that no thread has touched cost nothing.
// Each guard splits a mapping, of which a process has 65530 (vm.max_map_count): cooperative grids,
// and clusters that are run together, have more threads. All run the same code, so that the first
// ones' guards see its overflows.
static std::atomic<size_t> guards_left{8192};

static size_t take_guards(size_t wanted) {
  size_t left = guards_left.load();
  while (!guards_left.compare_exchange_weak(left, left - std::min(left, wanted))) {
  }
  return std::min(left, wanted);
}

Stacks::Stacks(size_t count) : count_(count) {
  void* memory = mmap(nullptr, count * slot_bytes(), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<std::byte*>(memory);
  guarded_ = take_guards(count);
  for (size_t i = 0; i < guarded_; ++i) {
    if (mprotect(base_ + i * slot_bytes(), page_bytes(), PROT_NONE) != 0) throw std::bad_alloc();
  }
}

Stacks::~Stacks() {
  munmap(base_, count_ * slot_bytes());
  guards_left += guarded_;
}

std::byte* Stacks::at(size_t index) const {
  return base_ + index * slot_bytes() + page_bytes();
}

bool Stacks::in_guard(const void* address) const {
  const auto* byte = static_cast<const std::byte*>(address);
  if (byte < base_ || byte >= base_ + count_ * slot_bytes()) return false;
  return static_cast<size_t>(byte - base_) % slot_bytes() < page_bytes();
}

}  // namespace kb::emu
