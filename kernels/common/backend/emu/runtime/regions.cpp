// Which memory is whose: state space .global (PTX ISA 9.1, 5.1), registered by the host or
// allocated by a step.
#include "regions.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "api_core.hpp"
#include "global_shadow.hpp"
#include "operations.hpp"
#include "runner.hpp"

namespace kb::emu {

namespace {

struct Block {
  std::byte* mapping;
  size_t mapped;
};
std::map<const std::byte*, Block> blocks;  // by the end of the mapping

std::map<const std::byte*, std::unique_ptr<Region>> regions;  // by their end
uint64_t regions_version = 1;
std::mutex words_guard;

Region* found_region(const std::byte* byte) {
  const auto found = regions.upper_bound(byte);
  return found == regions.end() || byte < found->second->begin ? nullptr : found->second.get();
}

void add_region(const std::byte* begin, size_t bytes, Region region) {
  region.begin = begin;
  region.end = begin + bytes;
  regions[region.end] = std::make_unique<Region>(std::move(region));
  ++regions_version;
}

}  // namespace

Words::Pages Words::zeros(size_t count) {
  auto* memory = static_cast<Access*>(std::calloc(count, sizeof(Access)));
  if (memory == nullptr) throw std::bad_alloc();
  return Pages(memory);
}

void Words::make_others() {
  const std::lock_guard lock(making_);
  if (!others_) others_ = zeros(2 * count);
  others_at_.store(others_.get(), std::memory_order_release);
}

std::string Region::at(size_t offset) const {
  if (!allocated) return name;
  return name + " of " + std::to_string(end - begin) + " bytes + " + std::to_string(offset);
}

Words& words_of(Region& region) {
  if (region.words != nullptr) return *region.words;
  const std::lock_guard lock(words_guard);
  if (region.words == nullptr) {
    const auto bytes = static_cast<size_t>(region.end - region.begin);
    const size_t count = (bytes + 3) / 4;
    region.words = lasting_words(region.begin, count);
    if (region.words == nullptr) region.words = std::make_shared<Words>(count);
  }
  return *region.words;
}

// The last ones that a thread found are looked at first: kernels alternate between a few.
Region* region_at(const std::byte* byte) {
  constexpr uint32_t kKept = 4;
  struct Last {
    uint64_t version = 0;
    uint32_t next = 0;
    Region* found[kKept] = {};
  };
  thread_local Last last;
  if (last.version == regions_version) {
    for (Region* region : last.found) {
      if (region != nullptr && byte >= region->begin && byte < region->end) return region;
    }
  } else {
    last = {.version = regions_version};
  }
  Region* region = found_region(byte);
  if (region != nullptr) last.found[last.next++ % kKept] = region;
  return region;
}

void each_writable_region(const std::function<void(std::byte*, uint64_t)>& see) {
  for (const auto& [end, region] : regions) {
    if (!region->writable) continue;
    see(const_cast<std::byte*>(region->begin), static_cast<uint64_t>(end - region->begin));
  }
}

// A buffer that kernels may use, from the host: a tensor of the call. `fresh`: what it holds is
// nothing that a kernel may read before it has written it.
void register_region(const void* pointer, size_t bytes, const char* name, bool writable,
                     bool fresh) {
  const auto* begin = static_cast<const std::byte*>(pointer);
  if (bytes == 0) return;
  // Tensors may share storage: the widest registration stands.
  const auto found = regions.upper_bound(begin);
  if (found != regions.end() && found->second->begin <= begin && begin + bytes <= found->first) {
    found->second->writable |= writable;
    found->second->holds |= !fresh;
    return;
  }
  add_region(begin, bytes,
             {.name = name, .writable = writable, .allocated = false, .holds = !fresh});
}

// Tensors of the last call; device memory of the step stays.
void unregister_foreign_regions() {
  std::erase_if(regions, [](const auto& each) { return !each.second->allocated; });
  ++regions_version;
}

void forget_contents() {
  for (const auto& [end, region] : regions) region->holds = true;
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
  blocks[mapping + pages + page] = {mapping, pages + page};
  add_region(begin, std::max<size_t>(bytes, 1),
             {.name = "device_malloc", .writable = true, .allocated = true, .holds = !checking()});
  return begin;
}

void free_device(void* pointer) {
  const auto* begin = static_cast<const std::byte*>(pointer);
  const auto region = regions.upper_bound(begin);
  if (region != regions.end() && region->second->begin == begin) {
    forget_counters(begin, region->second->end);
    regions.erase(region);
  }
  ++regions_version;
  const auto found = blocks.upper_bound(begin);
  if (found == blocks.end() || found->second.mapping > pointer) return;
  munmap(found->second.mapping, found->second.mapped);
  blocks.erase(found);
}

bool device_block(const void* address) {
  const auto found = blocks.upper_bound(static_cast<const std::byte*>(address));
  return found != blocks.end() && found->second.mapping <= address;
}

namespace {

// The buffer that an address has just missed.
std::string beside(const std::byte* at, ptrdiff_t near) {
  const auto next = regions.upper_bound(at);  // by their ends
  if (next != regions.begin()) {
    const Region& before = *std::prev(next)->second;
    const ptrdiff_t distance = at - before.end;
    if (distance == 0) return ", right past the end of " + before.name;
    if (distance < near)
      return ", " + std::to_string(distance) + " bytes past the end of " + before.name;
  }
  if (next == regions.end() || next->second->begin - at > near) return "";
  return ", " + std::to_string(next->second->begin - at) + " bytes before " + next->second->name;
}

}  // namespace

// A buffer is what the host has registered: reading past its end is wrong even if memory is there.
void global_access(const void* pointer, size_t bytes, bool writing, Pc pc, const char* what) {
  const auto* begin = static_cast<const std::byte*>(pointer);
  const Region* region = region_at(begin);
  if (region != nullptr && begin + bytes <= region->end && (!writing || region->writable)) return;
  std::string text = what;
  text += writing ? " writes " : " reads ";
  text += std::to_string(bytes) + " bytes";
  if (region == nullptr) {
    // What was freed there may have nothing to do with it, right behind another buffer.
    constexpr ptrdiff_t kNear = 64 * 1024, kNextTo = 4 * 1024;
    const std::string freed = not_owned_text(begin);
    const std::string missed = beside(begin, freed.empty() ? kNear : kNextTo);
    const bool past = missed.find(" past the end of ") != std::string::npos;
    text += freed.empty() || past ? " that no buffer owns" + missed : freed;
    if (past && !freed.empty()) text += ", in memory" + freed;
  } else if (begin + bytes > region->end) {
    const auto outside = static_cast<size_t>(begin + bytes - region->end);
    text += ", " + std::to_string(outside) + " of them beyond the end of " + region->name;
  } else {
    text += " of " + region->name + ", which is an input";
  }
  fail({.kind = Class::kOutOfBounds, .pc = pc, .text = std::move(text)});
}

}  // namespace kb::emu
