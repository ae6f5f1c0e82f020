// Atomics and strong loads and stores in any width and state space, as only translated PTX has
// them (PTX ISA 9.1, 8 and 9.7.13), and the windows of its addresses (5.1).
#include <cstring>
#include <mutex>
#include <string>

#include "api_core.hpp"
#include "api_ptx.hpp"
#include "core.hpp"
#include "global_shadow.hpp"
#include "runner.hpp"

namespace kb::emu {

namespace {

bool in_shared(const void* pointer) {
  const Cluster& cluster = *self().cta->cluster;
  const auto* byte = static_cast<const std::byte*>(pointer);
  return byte >= cluster.shared_base &&
         byte < cluster.shared_base + cluster.ctas.size() * kSharedStride;
}

// Accesses of 16 bytes, which no host instruction here makes at once.
std::mutex wide_accesses;

// Checks a strong access, which needs no order with other strong ones.
void strong_access(const void* at, uint32_t bytes, bool writing, Scope scope, Pc pc,
                   const char* what) {
  check_alignment(at, bytes, pc, what);
  if (in_shared(at)) {
    const SharedPlace place = shared_place(at, pc, what);
    Actor actor = generic_actor(pc, what);
    actor.atomic = true;
    if (writing) {
      shared_write(*place.cta, place.offset, bytes, actor);
    } else {
      shared_read(*place.cta, place.offset, bytes, actor);
    }
    return;
  }
  global_access(at, bytes, writing, pc, what);
  if (writing) {
    global_changed(at, bytes, pc, what, false, scope);
  } else if (checking()) {
    Actor actor = generic_actor(pc, what);
    actor.atomic = true;
    actor.scope = scope;
    global_load(at, bytes, actor);
  }
}

SyncWord sync_word(const void* at, Pc pc) {
  const Cta* cta = in_shared(at) ? shared_place(at, pc, "an atomic").cta : nullptr;
  return {static_cast<const uint32_t*>(at), cta};
}

// What a word hands on: before a strong write changes it.
void hand_over(const void* at, Order order, Scope scope, Pc pc) {
  const bool releases = order == Order::kRelease || order == Order::kAcqRel;
  counter_release(sync_word(at, pc), releases, scope);
}

// And what it has handed on, after a strong read has its value.
void take_over(const void* at, Order order, Scope scope, Pc pc) {
  const SyncWord word = sync_word(at, pc);
  if (order == Order::kAcquire || order == Order::kAcqRel) counter_acquire(word, scope);
  counter_observe(word, scope);
}

// A thread that polls a word lets the others run.
void poll_word(const void* at, uint32_t bytes, Pc pc) {
  const bool shared = in_shared(at);
  poll({.kind = shared ? Wait::Kind::kShared : Wait::Kind::kGlobal,
        .pc = pc,
        .at = at,
        .bytes = bytes,
        .offset = shared ? shared_place(at, pc, "a strong load").offset : 0,
        .seen = bits_at(at, bytes)});
}

// Whether the update has changed the word, whose old bits it gives.
template <typename T>
bool exchanged(T* word, uint64_t (*update)(uint64_t old, const void* context), const void* context,
               uint64_t& old_bits) {
  T old = __atomic_load_n(word, __ATOMIC_RELAXED);
  T made = static_cast<T>(update(old, context));
  while (
      !__atomic_compare_exchange_n(word, &old, made, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    made = static_cast<T>(update(old, context));
  }
  old_bits = old;
  return made != old;
}

// Whether the update leaves any value as it is: or with 0, say, which is a load.
bool changes_nothing(uint64_t (*update)(uint64_t old, const void* context), const void* context) {
  return update(0, context) == 0 && update(~uint64_t{0}, context) == ~uint64_t{0};
}

// A wild address ends the launch, and nothing may be locked then.
void touch(const void* at) {
  static_cast<void>(*static_cast<const volatile std::byte*>(at));
}

}  // namespace

// PTX: vectors of ld, st, atom and red (6.4.1): aligned as a whole.
void vector_access(const void* at, uint32_t bytes) {
  const Pc pc = KB_EMU_PC;
  check_alignment(at, bytes, pc, "a vector");
}

// PTX: atom and red, .shared and .global (9.7.13).
uint64_t atomic_update(void* at, uint32_t bytes, const AtomicForm& form,
                       uint64_t (*update)(uint64_t old, const void* context), const void* context) {
  const Pc pc = KB_EMU_PC;
  interleave();
  if (checking() && in_shared(at) && update(0, context) != update(~uint64_t{0}, context)) {
    const SharedPlace place = shared_place(at, pc, "an atomic");
    place.cta->shared_shadow->note_unwritten(place.offset / 4, generic_actor(pc, "an atomic"));
  }
  if (bytes == 4 && !in_shared(at)) counter_used(static_cast<const uint32_t*>(at), false);
  strong_access(at, bytes, true, form.scope, pc, form.returns ? "atom" : "red");
  if (bytes >= 4) hand_over(at, form.order, form.scope, pc);
  uint64_t old = 0;
  const bool changed = bytes == 8   ? exchanged(static_cast<uint64_t*>(at), update, context, old)
                       : bytes == 4 ? exchanged(static_cast<uint32_t*>(at), update, context, old)
                                    : exchanged(static_cast<uint16_t*>(at), update, context, old);
  if (bytes >= 4 && form.returns) take_over(at, form.order, form.scope, pc);
  if (form.returns && bytes >= 4) current_runner->spun(at, bytes, bits_at(at, bytes), pc);
  if (changed) {
    current_runner->changed();
    if (!in_shared(at)) {
      note_change(at, pc);
      store_is_seen(at);
    }
  } else if (form.returns && (form.may_poll || changes_nothing(update, context))) {
    poll_word(at, bytes, pc);
  }
  return old;
}

// PTX: ld.{relaxed,acquire}.scope and ld.volatile (9.7.9).
uint64_t strong_load(const void* at, uint32_t bytes, const StrongForm& form) {
  const Pc pc = KB_EMU_PC;
  interleave();
  strong_access(at, bytes, false, form.scope, pc, "a strong load");
  if (form.meeting && !in_shared(at)) counter_used(static_cast<const uint32_t*>(at), true);
  poll_word(at, bytes, pc);
  const uint64_t value = bits_at(at, bytes);
  current_runner->spun(at, bytes, value, pc);
  // What the store that it does not see has handed on is taken over all the same: it may stand for
  // what the value before it has.
  const uint64_t seen = in_shared(at) ? value : seen_at(at, bytes, value, pc);
  if (bytes >= 4) take_over(at, form.order, form.scope, pc);
  return seen;
}

// PTX: st.{relaxed,release}.scope and st.volatile (9.7.9).
void strong_store(void* at, uint32_t bytes, uint64_t value, const StrongForm& form) {
  const Pc pc = KB_EMU_PC;
  interleave();
  strong_access(at, bytes, true, form.scope, pc, "a strong store");
  const uint64_t before = bits_at(at, bytes);
  if (before != value) {
    current_runner->changed();
    if (!in_shared(at)) {
      note_change(at, pc);
      store_may_come_late(at, bytes, before, pc);
    }
  }
  current_runner->spun(at, bytes, value, pc);
  if (bytes >= 4) hand_over(at, form.order, form.scope, pc);
  if (bytes == 8) {
    __atomic_store_n(static_cast<uint64_t*>(at), value, __ATOMIC_RELEASE);
  } else if (bytes == 2) {
    __atomic_store_n(static_cast<uint16_t*>(at), static_cast<uint16_t>(value), __ATOMIC_RELEASE);
  } else if (bytes == 1) {
    __atomic_store_n(static_cast<uint8_t*>(at), static_cast<uint8_t>(value), __ATOMIC_RELEASE);
  } else {
    __atomic_store_n(static_cast<uint32_t*>(at), static_cast<uint32_t>(value), __ATOMIC_RELEASE);
  }
}

// PTX: ld with a vector, in one of the strong forms (9.7.9): 8 or 16 bytes.
// Assumption: a vector is accessed at once. PTX promises that for its elements only; CUB's scans
// rely on it, and hardware does it.
void strong_load_vector(const void* at, uint32_t bytes, const StrongForm& form, void* values) {
  const Pc pc = KB_EMU_PC;
  interleave();
  strong_access(at, bytes, false, form.scope, pc, "a strong load");
  poll_word(at, bytes, pc);
  touch(at);
  {
    const std::lock_guard lock(wide_accesses);
    std::memcpy(values, at, bytes);
  }
  for (uint32_t word = 0; word < bytes; word += 8) {
    take_over(static_cast<const std::byte*>(at) + word, form.order, form.scope, pc);
  }
}

// PTX: st with a vector, likewise.
void strong_store_vector(void* at, uint32_t bytes, const void* values, const StrongForm& form) {
  const Pc pc = KB_EMU_PC;
  interleave();
  strong_access(at, bytes, true, form.scope, pc, "a strong store");
  for (uint32_t word = 0; word < bytes; word += 8) {
    hand_over(static_cast<std::byte*>(at) + word, form.order, form.scope, pc);
  }
  touch(at);
  const std::lock_guard lock(wide_accesses);
  if (std::memcmp(at, values, bytes) != 0) current_runner->changed();
  std::memcpy(at, values, bytes);
}

// PTX: atom.exch.b128 and atom.cas.b128 (9.7.13).
void atomic_exchange_16(void* at, const AtomicForm& form, const void* compared, const void* value,
                        void* old) {
  const Pc pc = KB_EMU_PC;
  constexpr uint32_t kBytes = 16, kHalf = 8;
  interleave();
  strong_access(at, kBytes, true, form.scope, pc, "atom");
  for (uint32_t word = 0; word < kBytes; word += kHalf) {
    hand_over(static_cast<std::byte*>(at) + word, form.order, form.scope, pc);
  }
  touch(at);
  bool changed = false;
  {
    const std::lock_guard lock(wide_accesses);
    std::memcpy(old, at, kBytes);
    if (compared == nullptr || std::memcmp(old, compared, kBytes) == 0) {
      changed = std::memcmp(old, value, kBytes) != 0;
      std::memcpy(at, value, kBytes);
    }
  }
  for (uint32_t word = 0; word < kBytes; word += kHalf) {
    take_over(static_cast<const std::byte*>(at) + word, form.order, form.scope, pc);
  }
  if (changed) {
    current_runner->changed();
    if (!in_shared(at)) note_change(at, pc);
  } else {
    poll_word(at, kBytes, pc);
  }
}

// PTX: discard.L2 (9.7.9): a weak write of an indeterminate value.
void discard(void* at) {
  const Pc pc = KB_EMU_PC;
  constexpr uint32_t kBytes = 128;
  check_alignment(at, kBytes, pc, "discard");
  global_access(at, kBytes, true, pc, "discard");
  if (checking()) global_store(at, kBytes, generic_actor(pc, "discard"));
  std::memset(at, 0xff, kBytes);
}

// PTX: nanosleep (9.7.19): others run.
void sleep_a_while() {
  const Pc pc = KB_EMU_PC;
  sleep_between_polls(pc);
}

// PTX: trap (9.7.19): the launch ends with an error.
void trap() {
  const Pc pc = KB_EMU_PC;
  const char* const text =
      lacks_grid_words() ? "trap: grid.sync() in a launch that is not cooperative" : "trap";
  fail({.kind = Class::kCrash, .pc = pc, .text = text});
}

// CUDA C++ Programming Guide, "Assertion": the kernel ends with cudaErrorAssert.
void assertion_failed() {
  const Pc pc = KB_EMU_PC;
  fail({.kind = Class::kCrash, .pc = pc, .text = "assertion failed"});
}

// PTX: brkpt (9.7.19): suspends execution, and nobody is there to go on with it.
void breakpoint() {
  const Pc pc = KB_EMU_PC;
  fail(
      {.kind = Class::kCrash, .pc = pc, .text = "brkpt, which suspends the kernel for a debugger"});
}

// PTX: tcgen05.mma (9.7.16.10), disable-output-lane.
// Not modelled: a mask that is not zero.
void lanes_disabled() {
  const Pc pc = KB_EMU_PC;
  fail({.kind = Class::kDescriptor,
        .pc = pc,
        .text = "tcgen05.mma with lanes of D disabled, which is not emulated"});
}

// PTX: 5.1: where the CTA's .shared window begins.
void* own_shared() {
  return self().cta->shared;
}

// PTX: 5.1: the same as an address of .shared::cluster.
uint32_t own_shared_window() {
  return shared_address({self().cta, 0});
}

// PTX: isspacep.shared (9.7.9).
bool points_to_shared(const void* pointer, bool own) {
  if (!own) return in_shared(pointer);
  const auto* begin = static_cast<const std::byte*>(own_shared());
  return pointer >= begin && pointer < begin + kSharedStride;
}

// PTX: cvta.shared (9.7.9) and accesses through shared::cluster addresses.
void* cluster_shared(uint32_t address) {
  const Pc pc = KB_EMU_PC;
  const SharedPlace at = shared_place(address, pc, "an access");
  return at.cta->shared + at.offset;
}

// PTX: %dynamic_smem_size (10).
uint32_t dynamic_shared_bytes(uint32_t static_bytes) {
  return self().cta->shared_bytes - static_bytes;
}

void no_shared_address() {
  const Pc pc = KB_EMU_PC;
  fail({.kind = Class::kOutOfBounds,
        .pc = pc,
        .text = "the address is not in the CTA's shared memory"});
}

// PTX: tex.grad (9.7.10). Not modelled: which level gradients choose.
void no_level_by_gradients() {
  const Pc pc = KB_EMU_PC;
  fail({.kind = Class::kDescriptor,
        .pc = pc,
        .text = "tex.grad of a texture of several levels is not supported; tex.level is "
                "(tex2DLod)"});
}

}  // namespace kb::emu
