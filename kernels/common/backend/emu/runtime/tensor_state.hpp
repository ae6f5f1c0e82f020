// Per-CTA and per-warp state of tensor memory and tcgen05 (PTX ISA 9.1, 9.7.16), wgmma (9.7.15) and
// launch control (9.7.13); owned by tmem.cpp, tcgen05.cpp, wgmma.cpp and clc.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace kb::emu {

// 128 lanes of 512 columns and what a thread's tcgen05.fence ordered (tmem.hpp), a warp's loads and
// stores in flight (tmem_access.cpp), and the matrix operations of four warps (wgmma.cpp).
struct BulkStore;
struct Knowledge;
struct TmemCells;
struct TmemTraffic;
struct LaneFences;
struct Warpgroup;

// PTX: 9.7.16, tcgen05.alloc: whole columns, all 128 lanes.
struct TmemAllocation {
  uint32_t base = 0;
  uint32_t columns = 0;
  const void* pc = nullptr;
};

// One place in the code that issues a tcgen05 operation, and by whom it was first executed.
struct IssuePlace {
  const void* pc = nullptr;
  uint32_t lane = 0;
  uint64_t operands = 0;
};

// A bulk store from one place, which lanes of a warp make alike, and how often each has.
struct EqualStore {
  const void* pc = nullptr;
  uint64_t operands = 0;
  uint32_t turns = 0;
  std::array<uint32_t, 32> turns_of = {};
  std::shared_ptr<BulkStore> store;  // of the last turn
};

struct WarpTensor {
  std::vector<IssuePlace> places;
  std::deque<EqualStore> stores;
  uint32_t issuers = 0;  // lanes that have issued mma or cp
  std::shared_ptr<TmemTraffic> traffic;
  std::shared_ptr<LaneFences> fences;    // an array: one per lane
  std::shared_ptr<Warpgroup> warpgroup;  // of the first of four warps
};

struct CtaTensor {
  std::shared_ptr<TmemCells> cells;
  std::vector<TmemAllocation> allocations;
  std::vector<uint32_t> bases;         // of every allocation so far
  uint32_t least_columns = 512;        // an allocation may not exceed an earlier one
  const void* relinquished = nullptr;  // where
  uint32_t group = 0;                  // cta_group of the kernel; 0: no operation yet
  uint64_t allocs = 0;                 // entered, for the pair's rendezvous
  uint64_t deallocs = 0;
  std::shared_ptr<Knowledge> freed;         // what the deallocations so far release
  const void* launch_declined = nullptr;    // where a failed answer of launch control was read
  uint32_t launch_requests = 0;             // in flight towards this CTA
  const void* launch_request_pc = nullptr;  // the last one's
};

}  // namespace kb::emu
