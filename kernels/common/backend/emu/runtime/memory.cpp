// Which shared memory is whose (PTX ISA 9.1, 5.1), and the hooks that the compiler calls for every
// load and store of a kernel built for checking.
#define KB_EMU_UNTRACED  // loads and stores would be nearly all of a trace
#include <cstring>
#include <string>

#include "api_core.hpp"
#include "api_ptx.hpp"
#include "collected.hpp"
#include "global_shadow.hpp"
#include "regions.hpp"
#include "runner.hpp"
#include "timing.hpp"

namespace kb::emu {

// PTX: 5.1: the .shared window of a CTA, and generic addresses that fall into it.
// A generic address of shared memory: which CTA of the cluster, and where.
SharedPlace shared_place(const void* pointer, Pc pc, const char* what) {
  Cluster& cluster = *self().cta->cluster;
  const auto* byte = static_cast<const std::byte*>(pointer);
  const auto distance = static_cast<size_t>(byte - cluster.shared_base);
  const size_t rank = distance / kSharedStride;
  if (byte < cluster.shared_base || rank >= cluster.ctas.size() ||
      distance % kSharedStride >= kMaxSharedBytes) {
    fail({.kind = Class::kOutOfBounds,
          .pc = pc,
          .text = std::string(what) + ": the address is not in shared memory"});
  }
  return {&cluster.cta(static_cast<uint32_t>(rank)),
          static_cast<uint32_t>(distance % kSharedStride)};
}

// PTX: 5.1: the .shared::cluster window, as mapa and cvta give it: rank << 24 | offset is the
// emulator's own numbering, as on an H200.
// A CTA that has exited has no shared memory any more.
SharedPlace shared_place(uint32_t address, Pc pc, const char* what) {
  Cluster& cluster = *self().cta->cluster;
  const uint32_t rank = address >> 24;
  const uint32_t offset = (address & 0xffffffu) - kSharedBase;
  if (rank >= cluster.ctas.size() || offset >= kMaxSharedBytes) {
    fail({.kind = Class::kOutOfBounds,
          .pc = pc,
          .text = std::string(what) + ": the address is in no CTA of the cluster"});
  }
  Cta& cta = cluster.cta(rank);
  if (cta.exited()) {
    fail({.kind = Class::kExit,
          .pc = pc,
          .shared_offset = offset,
          .text = std::string(what) + " reaches shared memory of a CTA that has exited"});
  }
  return {&cta, offset};
}

uint32_t shared_address(const SharedPlace& place) {
  return place.cta->rank << 24 | (kSharedBase + place.offset);
}

// PTX: cvta.to.shared (9.7.9): the address as descriptors and barriers take it.
// Of a pointer outside the window the result is undefined, not the conversion: CUTLASS converts
// null for a matrix that it does not read. In translated PTX it is an address in no CTA.
// Stricter: in steps of the ptx layer it is a finding at once.
uint32_t smem_address(const void* pointer) {
  const Pc pc = KB_EMU_PC;
  if (runs_ptx() && !points_to_shared(pointer, false)) return 0xff000000u;
  return shared_address(shared_place(pointer, pc, "cvta.to.shared"));
}

// PTX: .extern .shared (5.1): dynamic shared memory, aligned to 1024.
// The one SharedStorage of a kernel; its type names objects in findings.
void* shared_storage(size_t bytes, const char* pretty_function) {
  const Pc pc = KB_EMU_PC;
  Cta& cta = *self().cta;
  if (bytes > cta.shared_bytes) {
    fail({.kind = Class::kOutOfBounds,
          .pc = pc,
          .text = "SharedStorage has " + std::to_string(bytes) + " bytes, the launch gave " +
                  std::to_string(cta.shared_bytes)});
  }
  if (cta.shared_type == nullptr) {
    cta.shared_type = pretty_function;
    note_memory(cta, pc);
  }
  return cta.shared;
}

// PTX: 6.4.1: what is not naturally aligned is undefined; hardware faults.
// Not modelled: more than 16 bytes in a buffer of the host's that is itself not aligned to them.
void check_alignment(const void* at, size_t bytes, Pc pc, const char* what) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  if ((address & (bytes - 1)) == 0) return;
  if (address % 16 == 0) {
    const Region* region = region_at(static_cast<const std::byte*>(at));
    if (region != nullptr && reinterpret_cast<uintptr_t>(region->begin) % bytes != 0) return;
  }
  fail({.kind = Class::kAlignment,
        .pc = pc,
        .text = std::string(what) + " of " + std::to_string(bytes) + " bytes is at an address " +
                std::to_string(address % bytes) + " bytes beyond a multiple of that"});
}

// ---- hooks -----------------------------------------------------------------------------------

namespace {

// Of one word by one thread, with no other load between them.
constexpr uint32_t kLoadsUntilOthersRun = 1u << 8;

// PTX: ld and st, weak (8): no order but what synchronization gives.
// An ordinary load or store of the kernel's code. Its own stack is its local memory and registers.
// Assumption: the compiler's loads and stores are the kernel's: what it keeps in registers, joins
// or drops is not seen. That is as on a GPU, with another compiler.
// `same`: a store of what is there already, as far as is known; `cached`: a load, by what.
void on_access(const void* pointer, size_t bytes, bool writing, Pc pc, bool same = false,
               const char* cached = nullptr) {
  if (!checking()) {
    if (timing) timed_access(pointer, bytes, writing, pc);
    return;
  }
  Thread* thread = current_thread;
  if (thread == nullptr) return;
  const auto* byte = static_cast<const std::byte*>(pointer);
  const std::byte* stack = thread->fiber->stack;
  if (byte >= stack && byte < stack + kStackBytes) return;
  Cluster& cluster = *thread->cta->cluster;
  const auto distance = static_cast<size_t>(byte - cluster.shared_base);
  if (byte >= cluster.shared_base && distance < cluster.ctas.size() * kSharedStride) {
    Cta& cta = cluster.cta(static_cast<uint32_t>(distance / kSharedStride));
    const auto offset = static_cast<uint32_t>(distance % kSharedStride);
    Actor actor = generic_actor(*thread, pc, writing ? "a store" : "a load");
    actor.same = same;
    if (writing) {
      shared_write(cta, offset, static_cast<uint32_t>(bytes), actor);
    } else {
      shared_read(cta, offset, static_cast<uint32_t>(bytes), actor);
    }
    return;
  }
  Region* region = region_at(byte);
  if (writing) {
    global_access(pointer, bytes, true, pc, "a store");
    Actor actor = generic_actor(*thread, pc, "a store");
    actor.same = same;
    global_store(*region, pointer, bytes, actor);
  } else if (region == nullptr) {
    // Parameters and constants are in no buffer; between the buffers there is nothing to read.
    if (device_block(byte) || in_no_parameter(byte)) {
      global_access(pointer, bytes, false, pc, "a load");
    }
  } else if (byte + bytes > region->end) {
    global_access(pointer, bytes, false, pc, "a load");
  } else if (region->writable) {
    Actor actor = generic_actor(*thread, pc, cached != nullptr ? cached : "a load");
    actor.cached = cached != nullptr;
    global_load(*region, pointer, bytes, actor);
  }
}

// An access through a type, which is the step's own where a thread runs.
void on_typed(const void* at, size_t alignment, Pc pc) {
  if (checking() && current_thread != nullptr) check_alignment(at, alignment, pc, "an access");
}

}  // namespace

// PTX: ld, weak (9.7.9.8), vectors too.
void weak_load(const void* at, uint32_t bytes) {
  const Pc pc = KB_EMU_PC;
  check_alignment(at, bytes, pc, "a load");
  on_access(at, bytes, false, pc);
  Thread* const thread = current_thread;
  if (thread == nullptr) return;
  thread->loads_again = at == thread->loaded ? thread->loads_again + 1 : 0;
  thread->loaded = at;
  // A loop that polls plainly: others run, too, and may write what it waits for.
  if (thread->loads_again == kLoadsUntilOthersRun) {
    thread->loads_again = 0;
    suspend({.kind = Wait::Kind::kYield, .pc = pc});
  }
}

// PTX: ld.global.nc (9.7.9.9), tex and suld (9.7.10).
void cached_load(const void* at, uint32_t bytes, const char* what) {
  const Pc pc = KB_EMU_PC;
  check_alignment(at, bytes, pc, what);
  on_access(at, bytes, false, pc, false, what);
}

// PTX: st, weak (9.7.9.11), vectors too.
void weak_store(void* at, uint32_t bytes, bool same) {
  const Pc pc = KB_EMU_PC;
  check_alignment(at, bytes, pc, "a store");
  on_access(at, bytes, true, pc, same);
}

// PTX: .local (5.1): a thread's own.
// Not modelled: in functions that are called, and through generic addresses, where an array ends.
void own_access(const void* at, uint32_t bytes, const void* local, size_t extent) {
  const Pc pc = KB_EMU_PC;
  check_alignment(at, bytes, pc, "an access to local memory");
  const auto offset = static_cast<const std::byte*>(at) - static_cast<const std::byte*>(local);
  if (extent == 0 || (offset >= 0 && offset + size_t{bytes} <= extent)) return;
  fail({.kind = Class::kOutOfBounds,
        .pc = pc,
        .text = "an access of " + std::to_string(bytes) + " bytes at offset " +
                std::to_string(offset) + " of local memory, which has " + std::to_string(extent)});
}

}  // namespace kb::emu

// The interface of ThreadSanitizer's instrumentation, which the compiler targets with
// -fsanitize=thread; the library is linked without its run-time part.
#define KB_EMU_EXPORT extern "C" __attribute__((visibility("default")))
// `alignment`: what the compiler takes for granted, and nvcc with it.
#define KB_EMU_HOOK(name, bytes, alignment, writing)   \
  KB_EMU_EXPORT void name(void* at) {                  \
    kb::emu::on_typed(at, alignment, KB_EMU_PC);       \
    kb::emu::on_access(at, bytes, writing, KB_EMU_PC); \
  }
// g++ says nothing of the alignment beyond 8 bytes.
#define KB_EMU_HOOKS(bytes)                                                       \
  KB_EMU_HOOK(__tsan_read##bytes, bytes, (bytes < 8 ? bytes : 8), false)          \
  KB_EMU_HOOK(__tsan_write##bytes, bytes, (bytes < 8 ? bytes : 8), true)          \
  KB_EMU_HOOK(__tsan_unaligned_read##bytes, bytes, 1, false)                      \
  KB_EMU_HOOK(__tsan_unaligned_write##bytes, bytes, 1, true)                      \
  KB_EMU_HOOK(__tsan_volatile_read##bytes, bytes, (bytes < 8 ? bytes : 8), false) \
  KB_EMU_HOOK(__tsan_volatile_write##bytes, bytes, (bytes < 8 ? bytes : 8), true)
KB_EMU_HOOKS(1)
KB_EMU_HOOKS(2)
KB_EMU_HOOKS(4)
KB_EMU_HOOKS(8)
KB_EMU_HOOKS(16)
KB_EMU_EXPORT void __tsan_read_range(void* at, unsigned long bytes) {
  kb::emu::on_access(at, bytes, false, KB_EMU_PC);
}
KB_EMU_EXPORT void __tsan_write_range(void* at, unsigned long bytes) {
  kb::emu::on_access(at, bytes, true, KB_EMU_PC);
}
KB_EMU_EXPORT void* __tsan_memcpy(void* to, const void* from, unsigned long bytes) {
  kb::emu::on_access(from, bytes, false, KB_EMU_PC);
  kb::emu::on_access(to, bytes, true, KB_EMU_PC);
  return std::memcpy(to, from, bytes);
}
KB_EMU_EXPORT void* __tsan_memmove(void* to, const void* from, unsigned long bytes) {
  kb::emu::on_access(from, bytes, false, KB_EMU_PC);
  kb::emu::on_access(to, bytes, true, KB_EMU_PC);
  return std::memmove(to, from, bytes);
}
KB_EMU_EXPORT void* __tsan_memset(void* to, int value, unsigned long bytes) {
  kb::emu::on_access(to, bytes, true, KB_EMU_PC);
  return std::memset(to, value, bytes);
}
KB_EMU_EXPORT void __tsan_vptr_update(void**, void*) {}
KB_EMU_EXPORT void __tsan_vptr_read(void**) {}
KB_EMU_EXPORT void __tsan_func_entry(void*) {}
KB_EMU_EXPORT void __tsan_func_exit() {}
KB_EMU_EXPORT void __tsan_init() {}
