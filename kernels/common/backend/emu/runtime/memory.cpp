// Which memory is whose: state spaces .shared and .global (PTX ISA 9.1, 5.1), that is shared memory
// of the running cluster and registered buffers; and the hooks that the compiler calls for every
// load and store of a kernel built for checking.
#define KB_EMU_UNTRACED  // loads and stores would be nearly all of a trace
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>

#include "api_core.hpp"
#include "regions.hpp"
#include "runner.hpp"

namespace kb::emu {

namespace {

struct Block {
  std::byte* mapping;
  size_t mapped;
};
std::map<const std::byte*, Block> blocks;  // by the end of the mapping

std::shared_mutex regions_guard;
std::map<const std::byte*, Region> regions;  // by their end
uint64_t regions_version = 1;

}  // namespace

// Allocated when something is first written: most registered buffers are inputs.
Words& words_of(const Region& region) {
  if (region.words != nullptr) return *region.words;
  const std::unique_lock lock(regions_guard);
  const auto found = regions.find(region.end);
  if (found->second.words == nullptr) {
    const auto bytes = static_cast<size_t>(region.end - region.begin);
    found->second.words = std::make_shared<Words>(bytes / 4 + 1);
  }
  __atomic_add_fetch(&regions_version, 1, __ATOMIC_RELAXED);  // others look again
  return *found->second.words;
}

// The region that holds an address, or null; the last one found is looked at first.
const Region* region_at(const std::byte* byte) {
  struct Last {
    uint64_t version = 0;
    Region region;
  };
  thread_local Last last;
  if (last.version == __atomic_load_n(&regions_version, __ATOMIC_RELAXED) &&
      byte >= last.region.begin && byte < last.region.end) {
    return &last.region;
  }
  const std::shared_lock lock(regions_guard);
  const auto found = regions.upper_bound(byte);
  if (found == regions.end() || byte < found->second.begin) return nullptr;
  last.region = found->second;
  last.version = regions_version;
  return &last.region;
}

// A buffer that kernels may use, from the host: a tensor of the call, or device_malloc.
void register_region(const void* pointer, size_t bytes, const char* name, bool writable) {
  const auto* begin = static_cast<const std::byte*>(pointer);
  if (bytes == 0) return;
  const std::unique_lock lock(regions_guard);
  // Tensors may share storage: the widest registration stands.
  const auto found = regions.upper_bound(begin);
  if (found != regions.end() && found->second.begin <= begin && begin + bytes <= found->first) {
    found->second.writable |= writable;
  } else {
    regions[begin + bytes] = {begin, begin + bytes, name, writable, nullptr};
  }
  __atomic_add_fetch(&regions_version, 1, __ATOMIC_RELAXED);
}

void unregister_region(const void* pointer) {
  const auto* begin = static_cast<const std::byte*>(pointer);
  const std::unique_lock lock(regions_guard);
  const auto found = regions.upper_bound(begin);
  if (found != regions.end() && found->second.begin == begin) regions.erase(found);
  __atomic_add_fetch(&regions_version, 1, __ATOMIC_RELAXED);
}

// Tensors of the last call; device memory of the step stays.
void unregister_foreign_regions() {
  const std::unique_lock lock(regions_guard);
  std::erase_if(regions, [](const auto& each) { return each.second.name != "device_malloc"; });
  __atomic_add_fetch(&regions_version, 1, __ATOMIC_RELAXED);
}

// Runtime: cudaMalloc, aligned to 256 bytes.
// The block ends at the end of a page, so that what lies behind it faults.
void* allocate_device(size_t bytes) {
  constexpr size_t kAlignment = 256;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t used = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  const size_t pages = (used + page - 1) / page * page;
  void* memory =
      mmap(nullptr, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* mapping = static_cast<std::byte*>(memory);
  mprotect(mapping + pages, page, PROT_NONE);
  std::byte* begin = mapping + pages - used;
  {
    const std::unique_lock lock(regions_guard);
    blocks[mapping + pages + page] = {mapping, pages + page};
  }
  register_region(begin, std::max<size_t>(bytes, 1), "device_malloc", true);
  return begin;
}

void free_device(void* pointer) {
  unregister_region(pointer);
  const std::unique_lock lock(regions_guard);
  const auto found = blocks.upper_bound(static_cast<const std::byte*>(pointer));
  if (found == blocks.end() || found->second.mapping > pointer) return;
  munmap(found->second.mapping, found->second.mapped);
  blocks.erase(found);
}

bool device_block(const void* address) {
  const std::shared_lock lock(regions_guard);
  const auto found = blocks.upper_bound(static_cast<const std::byte*>(address));
  return found != blocks.end() && found->second.mapping <= address;
}

// A buffer is what the host has registered: reading past its end is wrong even if memory is there.
void global_access(const void* pointer, size_t bytes, bool writing, Pc pc, const char* what) {
  const auto* begin = static_cast<const std::byte*>(pointer);
  const Region* region = region_at(begin);
  if (region != nullptr && begin + bytes <= region->end && (!writing || region->writable)) return;
  std::string text = what;
  text += writing ? " writes " : " reads ";
  text += std::to_string(bytes) + " bytes";
  if (region == nullptr) {
    text += " that no buffer owns";
  } else if (begin + bytes > region->end) {
    text += " beyond the end of " + region->name;
  } else {
    text += " of " + region->name + ", which is an input";
  }
  fail({.kind = Class::kOutOfBounds, .pc = pc, .text = std::move(text)});
}

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
uint32_t smem_address(const void* pointer) {
  const Pc pc = KB_EMU_PC;
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
  cta.shared_type = pretty_function;
  return cta.shared;
}

// ---- hooks -----------------------------------------------------------------------------------

namespace {

// PTX: ld and st, weak (8): no order but what synchronization gives.
// An ordinary load or store of the kernel's code. Its own stack is its local memory and registers.
// Assumption: the compiler's loads and stores are the kernel's: what it keeps in registers, joins
// or drops is not seen. That is as on a GPU, with another compiler.
void on_access(const void* pointer, size_t bytes, bool writing, Pc pc) {
  Thread* thread = current_thread;
  if (thread == nullptr || !checking()) return;
  const auto* byte = static_cast<const std::byte*>(pointer);
  const std::byte* stack = thread->fiber->stack;
  if (byte >= stack && byte < stack + kStackBytes) return;
  Cluster& cluster = *thread->cta->cluster;
  const auto distance = static_cast<size_t>(byte - cluster.shared_base);
  if (byte >= cluster.shared_base && distance < cluster.ctas.size() * kSharedStride) {
    Cta& cta = cluster.cta(static_cast<uint32_t>(distance / kSharedStride));
    const auto offset = static_cast<uint32_t>(distance % kSharedStride);
    const Actor actor = generic_actor(pc, writing ? "a store" : "a load");
    if (writing) {
      shared_write(cta, offset, static_cast<uint32_t>(bytes), actor);
    } else {
      shared_read(cta, offset, static_cast<uint32_t>(bytes), actor);
    }
    return;
  }
  grid_access(pointer, bytes, writing, pc, writing ? "a store" : "a load");
  if (writing) {
    global_access(pointer, bytes, true, pc, "a store");
    global_written(pointer, bytes, pc, "a store");
  } else if (region_at(byte) == nullptr && device_block(byte)) {
    // Parameters and constants are in no buffer; between the buffers there is nothing to read.
    global_access(pointer, bytes, false, pc, "a load");
  }
}

}  // namespace

}  // namespace kb::emu

// The interface of ThreadSanitizer's instrumentation, which the compiler targets with
// -fsanitize=thread; the library is linked without its run-time part.
#define KB_EMU_EXPORT extern "C" __attribute__((visibility("default")))
#define KB_EMU_HOOK(name, bytes, writing)              \
  KB_EMU_EXPORT void name(void* at) {                  \
    kb::emu::on_access(at, bytes, writing, KB_EMU_PC); \
  }
#define KB_EMU_HOOKS(bytes)                               \
  KB_EMU_HOOK(__tsan_read##bytes, bytes, false)           \
  KB_EMU_HOOK(__tsan_write##bytes, bytes, true)           \
  KB_EMU_HOOK(__tsan_unaligned_read##bytes, bytes, false) \
  KB_EMU_HOOK(__tsan_unaligned_write##bytes, bytes, true) \
  KB_EMU_HOOK(__tsan_volatile_read##bytes, bytes, false)  \
  KB_EMU_HOOK(__tsan_volatile_write##bytes, bytes, true)
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
