// red, atom and waits for words of global memory, PTX ISA 9.1, 9.7.13 and 9.7.9. Other OS threads
// add to the same words.
#include <atomic>
#include <cmath>

#include "api_core.hpp"
#include "api_tensor.hpp"
#include "core.hpp"
#include "global_shadow.hpp"
#include "runner.hpp"
#include "timing.hpp"

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
  timed(Op::kReduce, pc);
  if (reinterpret_cast<uintptr_t>(dst) % bytes != 0) {
    fail({.kind = Class::kAlignment,
          .pc = pc,
          .text = std::string(kWhat) + " of " + std::to_string(count) +
                  " floats needs a destination on " + std::to_string(bytes) + " bytes"});
  }
  global_access(dst, bytes, true, pc, kWhat);
  global_changed(dst, bytes, pc, kWhat);
  current_runner->changed();
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
  counter_used(dst, false);
  global_changed(dst, sizeof *dst, pc, "atom.add", true);
  counter_release(dst, false);
  timed_word(Op::kAtomic, pc, dst, true);
  current_runner->changed();
  const uint32_t old = __atomic_fetch_add(dst, value, __ATOMIC_RELAXED);
  counter_observe(dst);
  return old;
}

// PTX: red.release.gpu.global.add.u32 (9.7.13): what publishes a CTA's results to those that wait
// for a counter.
void red_add_u32(uint32_t* dst, uint32_t value) {
  const Pc pc = KB_EMU_PC;
  interleave();
  global_access(dst, sizeof *dst, true, pc, "red.add");
  counter_used(dst, false);
  global_changed(dst, sizeof *dst, pc, "red.add");
  counter_release(dst, true);
  timed_word(Op::kReduce, pc, dst, true);
  current_runner->changed();
  __atomic_add_fetch(dst, value, __ATOMIC_RELEASE);
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
  current_runner->changed();
  *dst += value;
}

namespace {

// A poll of a word that is repeated until `ready` says that it holds what is waited for.
template <typename Ready>
void wait_for_word(const uint32_t* word, uint64_t value, bool meeting, Pc pc, const Ready& ready) {
  constexpr const char* kWhat = "a wait for global memory";
  interleave();
  global_access(word, sizeof *word, false, pc, kWhat);
  counter_used(word, meeting);
  wait_until(
      Wait::Kind::kGlobal, pc, 0, value,
      [word, ready] { return ready(__atomic_load_n(word, __ATOMIC_ACQUIRE)); }, word);
  timed_word(Op::kWordWait, pc, word, false);
  if (!checking()) return;
  counter_acquire(word);
  Actor actor = generic_actor(pc, kWhat);
  actor.atomic = true;
  global_load(word, sizeof *word, actor);
}

}  // namespace

// PTX: ld.acquire.gpu.global.u32 (9.7.9) in a loop.
// What the atomics that it has seen released is known from here on.
void global_wait_at_least(const uint32_t* word, uint32_t value) {
  wait_for_word(word, value, false, KB_EMU_PC, [value](uint32_t now) { return now >= value; });
}

// PTX: ld.acquire.gpu.global.u32 (9.7.9) in a loop, until a bit of the mask differs: the arrival
// word of a grid barrier.
uint32_t global_wait_changed(const uint32_t* word, uint32_t before, uint32_t mask) {
  wait_for_word(word, before, true, KB_EMU_PC,
                [before, mask](uint32_t now) { return ((now ^ before) & mask) != 0; });
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

}  // namespace kb::emu
