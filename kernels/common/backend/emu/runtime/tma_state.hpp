// Per-thread and per-CTA state of TMA, tensor maps and cp.async (PTX ISA 9.1, 9.7.9); owned by
// tma.cpp, tensormap.cpp and cp_async.cpp. Empty when not checking: then copies complete where they
// are issued.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "knowledge.hpp"
#include "ptx/types.cuh"

namespace kb::emu {

struct BulkStore;     // in flight (tma.cpp)
struct ThreadCopies;  // a thread's cp.async (cp_async.cpp)

// PTX: 9.7.9, bulk async-group: what one thread has issued between two commits.
// What one cp.async.bulk.commit_group has gathered.
struct BulkGroup {
  std::vector<std::shared_ptr<BulkStore>> stores;
  bool waited = false;  // its reads, by the thread
};

// PTX: 9.7.13, fence.proxy.tensormap::generic.acquire: valid for one address and the content that
// was released before.
// The version of a changed map that a thread has acquired.
struct AcquiredMap {
  const TensorMap* map;
  uint64_t version;
};

struct ThreadTma {
  std::vector<std::shared_ptr<BulkStore>> open;  // since the last commit
  std::vector<BulkGroup> groups;                 // oldest first
  std::vector<Event> dropped;                    // writes of groups waited for with .read only
  uint64_t commits = 0;
  std::vector<AcquiredMap> acquired;
  std::vector<const TensorMap*> unreleased;  // global maps that it replaced fields of
  std::shared_ptr<ThreadCopies> copies;      // null before the first
};

// A copy that reads a tensor map, until its end is known to all that matter.
struct MapReader {
  Event copy;
  uint32_t thread = 0;   // component of the issuer
  uint64_t commits = 0;  // of the issuer, when it issued the copy
  uint32_t waited = 0;   // epoch of the issuer when its wait_group had covered the copy; 0: not yet
  bool load = false;     // completes on an mbarrier, not in a bulk group
  const void* pc = nullptr;
};

// A copy into this CTA's shared memory.
struct Incoming {
  Event copy;
  const void* pc = nullptr;
};

// The tensormap proxy's view is kept by CTA: what one thread has made it read, another of the CTA
// may get.
// A box that a load has written to shared memory.
struct LoadedBox {
  uint32_t offset;
  uint32_t bytes;
  uint32_t width;  // of its swizzle: 0, 32, 64, 128
  Pc pc;
};
inline constexpr size_t kMostLoaded = 64;

struct CtaTma {
  std::unordered_map<const TensorMap*, TensorMap> views;  // what the tensormap proxy saw last
  std::unordered_map<const TensorMap*, std::vector<MapReader>> readers;
  std::vector<Incoming> incoming;
  std::vector<LoadedBox> loaded;  // where they are, and checking
};

}  // namespace kb::emu
