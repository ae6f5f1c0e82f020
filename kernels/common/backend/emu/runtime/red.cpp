// red and atom, PTX ISA 9.1, 9.7.13. Other OS threads add to the same words of global memory.
#include <atomic>
#include <cmath>

#include "api_tensor.hpp"
#include "core.hpp"

namespace kb::emu {

namespace {

// As the L2's adders do it (an H200 says so): subnormal operands and sums become zeros of their
// sign, NaN the canonical one.
// Assumption: all f32 additions to global memory flush, whatever the compiler's flags say.
float flushed(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

// Assumption: a NaN result is the canonical 0x7fffffff. PTX leaves payloads open.
float sum(float left, float right) {
  const float exact = flushed(left) + flushed(right);
  return std::isnan(exact) ? __builtin_bit_cast(float, 0x7fffffffu) : flushed(exact);
}

}  // namespace

// PTX: red.global.add.f32 and its .v2 and .v4 forms (9.7.13): each element atomic by itself.
// red.relaxed.gpu.add: each float by itself, in no order with those of other threads.
// Sums of several CTAs depend on the order in which they come: results are compared within a bound,
// or with addends whose sums are exact.
void red_add_f32(float* dst, const float* value, uint32_t count) {
  const Pc pc = KB_EMU_PC;
  constexpr const char* kWhat = "red.add";
  interleave();
  const size_t bytes = count * sizeof(float);
  if (reinterpret_cast<uintptr_t>(dst) % bytes != 0) {
    fail({.kind = Class::kAlignment,
          .pc = pc,
          .text = std::string(kWhat) + " of " + std::to_string(count) +
                  " floats needs a destination on " + std::to_string(bytes) + " bytes"});
  }
  global_access(dst, bytes, true, pc, kWhat);
  global_changed(dst, bytes, pc, kWhat);
  for (uint32_t i = 0; i < count; ++i) {
    const std::atomic_ref<float> word(dst[i]);
    float old = word.load(std::memory_order_relaxed);
    while (!word.compare_exchange_weak(old, sum(old, value[i]), std::memory_order_relaxed)) {
    }
  }
}

// PTX: atom.relaxed.gpu.global.add.u32 (9.7.13): the old value, of which each thread gets another.
// Which thread gets which is what the schedule makes it; kernels must not depend on it.
uint32_t atom_add_u32(uint32_t* dst, uint32_t value) {
  const Pc pc = KB_EMU_PC;
  interleave();
  global_access(dst, sizeof *dst, true, pc, "atom.add");
  global_changed(dst, sizeof *dst, pc, "atom.add");
  counter_atomic(dst, true, false);
  return __atomic_fetch_add(dst, value, __ATOMIC_RELAXED);
}

// PTX: red.shared::cta.add.u32 (9.7.13).
// Atomics on one word need no order between them.
// Relaxed: a plain read of the word still needs a barrier behind the additions.
void red_shared_add_u32(uint32_t* dst, uint32_t value) {
  const Pc pc = KB_EMU_PC;
  constexpr const char* kWhat = "red.add";
  interleave();
  const SharedPlace at = shared_place(dst, pc, kWhat);
  Actor actor = generic_actor(pc, kWhat);
  actor.atomic = true;
  shared_write(*at.cta, at.offset, sizeof *dst, actor);
  *dst += value;
}

}  // namespace kb::emu
