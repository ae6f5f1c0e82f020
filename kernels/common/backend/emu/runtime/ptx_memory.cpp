// Atomics and strong loads and stores in any width and state space, as only translated PTX has
// them (PTX ISA 9.1, 8 and 9.7.13), and the windows of its addresses (5.1).
#include <cstring>
#include <string>
#include <unordered_map>

#include "api_core.hpp"
#include "api_ptx.hpp"
#include "core.hpp"

namespace kb::emu {

namespace {

// Equal values in a row of one word, after which a thread that polls it sleeps.
constexpr uint64_t kPollsUntilSleep = 1000;

// The last strong load of each thread of this OS thread: whether it polls.
struct Polled {
  const void* at = nullptr;
  uint64_t value = 0;
  uint64_t times = 0;
};
thread_local std::unordered_map<const Thread*, Polled> polled;
thread_local uint64_t polled_in = 0;

bool in_shared(const void* pointer) {
  const Cluster& cluster = *self().cta->cluster;
  const auto* byte = static_cast<const std::byte*>(pointer);
  return byte >= cluster.shared_base &&
         byte < cluster.shared_base + cluster.ctas.size() * kSharedStride;
}

uint64_t bits_at(const void* at, uint32_t bytes) {
  if (bytes == 8) return __atomic_load_n(static_cast<const uint64_t*>(at), __ATOMIC_ACQUIRE);
  if (bytes == 4) return __atomic_load_n(static_cast<const uint32_t*>(at), __ATOMIC_ACQUIRE);
  uint64_t value = 0;
  std::memcpy(&value, at, bytes);
  return value;
}

void check_alignment(const void* at, uint32_t bytes, Pc pc, const char* what) {
  if (reinterpret_cast<uintptr_t>(at) % bytes == 0) return;
  fail({.kind = Class::kAlignment,
        .pc = pc,
        .text = std::string(what) + " of " + std::to_string(bytes) + " bytes is misaligned"});
}

// Checks a strong access, which needs no order with other strong ones.
void strong_access(const void* at, uint32_t bytes, bool writing, Pc pc, const char* what) {
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
  if (writing) global_changed(at, bytes, pc, what);
}

// What a word of global memory hands on.
void synchronize(const void* at, Order order, bool returns) {
  if (in_shared(at)) return;
  const bool releases = order == Order::kRelease || order == Order::kAcqRel;
  const auto* word = static_cast<const uint32_t*>(at);
  counter_atomic(word, returns, releases);
  if (returns && (order == Order::kAcquire || order == Order::kAcqRel)) counter_acquire(word);
}

// A thread that polls lets the others run, and sleeps when that has not helped for long.
// Assumption: a loop that has seen one value a thousand times polls until it changes.
void wait_if_polling(const void* at, uint32_t bytes, Pc pc) {
  const Launch& launch = *self().cta->cluster->launch;
  if (polled_in != launch.serial) polled.clear();
  polled_in = launch.serial;
  Polled& last = polled[&self()];
  const uint64_t value = bits_at(at, bytes);
  if (last.at != at || last.value != value) {
    last = {at, value, 0};
    return;
  }
  if (++last.times < kPollsUntilSleep) {
    suspend({.kind = Wait::Kind::kYield, .pc = pc});
    return;
  }
  wait_until(Wait::Kind::kGlobal, pc, 0, value,
             [at, bytes, value] { return bits_at(at, bytes) != value; });
}

}  // namespace

// PTX: atom and red, .shared and .global (9.7.13).
// Assumption: all scopes reach the whole GPU; a narrow scope is not found.
uint64_t atomic_update(void* at, uint32_t bytes, Order order, bool returns,
                       uint64_t (*update)(uint64_t old, const void* context), const void* context) {
  const Pc pc = KB_EMU_PC;
  interleave();
  if (bytes == 4 && !in_shared(at)) counter_used(static_cast<const uint32_t*>(at), false);
  strong_access(at, bytes, true, pc, returns ? "atom" : "red");
  if (bytes >= 4) synchronize(at, order, returns);
  if (bytes == 2) {
    auto* half = static_cast<uint16_t*>(at);
    uint16_t old = __atomic_load_n(half, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(half, &old, static_cast<uint16_t>(update(old, context)),
                                        false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    }
    return old;
  }
  if (bytes == 8) {
    auto* word = static_cast<uint64_t*>(at);
    uint64_t old = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(word, &old, update(old, context), false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
    }
    return old;
  }
  auto* word = static_cast<uint32_t*>(at);
  uint32_t old = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &old, static_cast<uint32_t>(update(old, context)),
                                      false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
  }
  return old;
}

// PTX: ld.{relaxed,acquire}.scope and ld.volatile (9.7.9).
uint64_t strong_load(const void* at, uint32_t bytes, bool acquire, bool meeting) {
  const Pc pc = KB_EMU_PC;
  interleave();
  strong_access(at, bytes, false, pc, "a strong load");
  if (meeting && !in_shared(at)) counter_used(static_cast<const uint32_t*>(at), true);
  wait_if_polling(at, bytes, pc);
  const uint64_t value = bits_at(at, bytes);
  if (bytes >= 4) synchronize(at, acquire ? Order::kAcquire : Order::kRelaxed, true);
  return value;
}

// PTX: st.{relaxed,release}.scope and st.volatile (9.7.9).
void strong_store(void* at, uint32_t bytes, uint64_t value, bool release) {
  const Pc pc = KB_EMU_PC;
  interleave();
  strong_access(at, bytes, true, pc, "a strong store");
  if (bytes >= 4) synchronize(at, release ? Order::kRelease : Order::kRelaxed, false);
  if (bytes < 4) {
    std::memcpy(at, &value, bytes);
  } else if (bytes == 8) {
    __atomic_store_n(static_cast<uint64_t*>(at), value, __ATOMIC_RELEASE);
  } else {
    __atomic_store_n(static_cast<uint32_t*>(at), static_cast<uint32_t>(value), __ATOMIC_RELEASE);
  }
}

// PTX: nanosleep (9.7.19): others run.
void sleep_a_while() {
  const Pc pc = KB_EMU_PC;
  suspend({.kind = Wait::Kind::kYield, .pc = pc});
}

// PTX: trap (9.7.19): the launch ends with an error.
void trap() {
  const Pc pc = KB_EMU_PC;
  fail({.kind = Class::kCrash, .pc = pc, .text = "trap"});
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

}  // namespace kb::emu
