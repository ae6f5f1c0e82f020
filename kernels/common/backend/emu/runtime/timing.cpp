// Records of launches (timing.hpp), kept in memory: 40 bytes each.
#include "timing.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core.hpp"
#include "regions.hpp"
#include "runner.hpp"

namespace kb::emu {

bool timing = false;
By arrives = By::kThread;

namespace {

struct Record {
  Op op;
  uint8_t lane;
  uint16_t warp;
  uint32_t cta;
  uint64_t a;
  uint64_t b;
  uint32_t c;
  uint32_t x;
  Pc pc;
};
static_assert(sizeof(Record) == 40);

enum Kind : uint8_t {
  kSharedLoad,
  kSharedStore,
  kGlobalLoad,
  kGlobalStore,
  kLoadSectors,
  kInstructions,
};
using Counts = std::array<uint32_t, 6>;

// What lane 0 has done since its warp's last record. `path`: the blocks of code by place, and
// behind each its loads and stores as kAccess | 0 (of a register), 1 (shared memory), 2 (global).
struct Since {
  Counts counts{};
  uint64_t hash = 0;  // of blocks that have instructions
  std::vector<uint32_t> path;
};
constexpr uint32_t kAccess = 1u << 31;
constexpr size_t kLongestPath = 1 << 16;

// What the lanes of a warp touch together at a load or store, as the first warp does there: in
// shared memory passes, of 32 banks each, in global memory sectors.
struct Site {
  uint64_t warp = 0;  // the first one
  uint32_t lanes = 0, touched = 1;
  std::vector<uint64_t> units;      // words of the size that a lane accesses, or sectors
  std::array<uint8_t, 32> in_bank;  // how many of them

  void add(uint64_t at, size_t bytes, bool shared) {
    const uint64_t size = shared ? std::max<size_t>(bytes, 4) : 32;
    if (std::ranges::find(units, at / size) != units.end()) return;
    units.push_back(at / size);
    uint8_t& here = in_bank[at / size % (128 / size)];
    touched = shared ? std::max<uint32_t>(touched, ++here) : static_cast<uint32_t>(units.size());
  }
};

std::vector<Record> records;
std::unordered_map<const Warp*, Since> accesses;
std::unordered_map<uint64_t, uint32_t> numbers;  // of paths by their hash, from 1 on
// Of each path: its instructions, its length, itself as the first warp took it.
std::vector<uint32_t> paths;
std::unordered_map<const void*, uint64_t> versions;
std::unordered_set<uint64_t> written;  // pages of global memory, by lane 0
constexpr uint64_t kPageBytes = 4096;
std::unordered_map<Pc, Site> sites;
uint64_t barriers = 0;  // initialized
// Of the OS thread that runs the launch: looking it up costs a call.
Thread** running = nullptr;
const Warp* counted = nullptr;
Since* since = nullptr;  // its own in `accesses`
// By place in a step's code, from `code` on: instructions of the block that begins there.
std::vector<uint16_t> weights;
const std::byte* code = nullptr;

const Thread* running_thread() {
  if (running == nullptr) running = &current_thread;
  return *running;
}

Since& since_of(const Warp* warp) {
  if (warp != counted) since = &accesses[counted = warp];
  return *since;
}

void go_on(std::vector<uint32_t>& path, uint32_t to) {
  if (path.size() < kLongestPath) path.push_back(to);
}

// The number of a path that has instructions, 0: it has none.
uint32_t number_of(const Since& did) {
  if (did.counts[kInstructions] == 0) return 0;
  const auto [at, is_new] =
      numbers.try_emplace(did.hash, static_cast<uint32_t>(numbers.size() + 1));
  if (is_new) {
    paths.push_back(did.counts[kInstructions]);
    paths.push_back(static_cast<uint32_t>(did.path.size()));
    paths.insert(paths.end(), did.path.begin(), did.path.end());
  }
  return at->second;
}

uint32_t cta_of(const Thread& thread) {
  const Cluster& cluster = *thread.cta->cluster;
  return static_cast<uint32_t>(cluster.id * cluster.ctas.size() + thread.cta->rank);
}

// What lane 0 has done since its warp's last record.
void put_accesses(const Thread& thread, uint32_t cta, Pc pc) {
  Since& did = since_of(thread.warp);
  Counts& n = did.counts;
  if (n != Counts{})
    records.push_back({Op::kAccesses, 0, static_cast<uint16_t>(thread.warp->index), cta,
                       n[kSharedLoad] | uint64_t{n[kSharedStore]} << 32,
                       n[kGlobalLoad] | uint64_t{n[kGlobalStore]} << 32, n[kLoadSectors],
                       number_of(did), pc});
  n = {};
  did.hash = 0;
  did.path.clear();
}

}  // namespace

void timed_end(const Thread& thread) {
  if (timing && thread.lane == 0) put_accesses(thread, cta_of(thread), nullptr);
}

void timed_record(Op op, Pc pc, uint64_t a, uint64_t b, uint32_t c, uint32_t x, bool any_lane) {
  if (op == Op::kLaunch) {
    accesses.clear();
    counted = nullptr;
    running = nullptr;
    sites.clear();
    records.push_back({op, 0, 0, 0, a, b, c, x, pc});
    return;
  }
  const Thread* thread = current_thread;
  if (thread == nullptr || (thread->lane != 0 && !any_lane)) return;
  const uint32_t cta = cta_of(*thread);
  const auto warp = static_cast<uint16_t>(thread->warp->index);
  if (thread->lane == 0) put_accesses(*thread, cta, pc);
  if ((op == Op::kLoad || op == Op::kAsyncCopy) && written.contains(a / kPageBytes)) x |= kWritten;
  records.push_back({op, static_cast<uint8_t>(thread->lane), warp, cta, a, b, c, x, pc});
}

void timed_access(const void* pointer, size_t bytes, bool writing, Pc pc) {
  if (running_thread() == nullptr) return;
  const Thread& thread = *running_thread();
  const auto* at = static_cast<const std::byte*>(pointer);
  const std::byte* stack = thread.fiber->stack;
  const auto goes = [&](uint32_t where) {
    if (thread.lane == 0) go_on(since_of(thread.warp).path, kAccess | where);
  };
  if (at >= stack && at < stack + kStackBytes) return goes(0);
  const Cluster& cluster = *thread.cta->cluster;
  const bool shared = at >= cluster.shared_base && static_cast<size_t>(at - cluster.shared_base) <
                                                       cluster.ctas.size() * kSharedStride;
  // Parameters are operands of instructions.
  if (!shared && !writing && region_at(at) == nullptr) return goes(0);
  goes(shared ? 1 : 2);
  const auto address = reinterpret_cast<uint64_t>(pointer);
  // nvcc makes one access of those to parts of an aligned vector, which the host's compiler splits.
  static std::pair<const Thread*, uint64_t> last[2];
  if (const std::pair vector{&thread, address / 16}; vector == std::exchange(last[writing], vector))
    return;
  Site& site = sites[pc];
  const uint64_t warp = uint64_t{cta_of(thread) + 1} << 32 | thread.warp->index;
  if (site.warp == 0) site.warp = warp;
  if (site.warp == warp && (site.lanes >> thread.lane & 1) == 0) {
    site.lanes |= 1u << thread.lane;
    site.add(address, std::min<size_t>(bytes, 16), shared);
  }
  if (thread.lane != 0) return;
  Counts& n = since_of(thread.warp).counts;
  const auto touched = static_cast<uint32_t>(site.touched * ((bytes + 15) / 16));
  if (shared) {
    n[writing ? kSharedStore : kSharedLoad] += touched;
  } else if (writing) {
    n[kGlobalStore] += touched;
    written.insert(address / kPageBytes);
  } else {
    ++n[kGlobalLoad];
    n[kLoadSectors] += touched;
  }
}

void timed_word(Op op, Pc pc, const void* word, bool change) {
  if (!timing) return;
  const uint64_t version = versions[word] += change;
  timed_record(op, pc, reinterpret_cast<uint64_t>(word), version, 0, 0, true);
}

uint32_t timed_share(uint32_t cluster, uint32_t slots, bool first) {
  static std::vector<uint32_t> taken;
  if (first) taken.assign(slots, 0);
  return cluster + slots * ++taken[cluster];
}

uint64_t timed_serial() {
  return ++barriers;
}

void forget_timing() {
  timing = false;
  records = {};
  accesses.clear();
  numbers.clear();
  paths = {};
  counted = nullptr;
  versions.clear();
  written.clear();
  sites.clear();
  barriers = 0;
}

}  // namespace kb::emu

#define KB_EMU_EXPORT extern "C" __attribute__((visibility("default")))

// Called where a block of a step's code begins (-fsanitize-coverage=trace-pc).
KB_EMU_EXPORT void __sanitizer_cov_trace_pc() {
  using namespace kb::emu;
  if (!timing) return;
  const Thread* thread = running_thread();
  if (thread == nullptr || thread->lane != 0) return;
  const auto at = static_cast<size_t>(static_cast<const std::byte*>(KB_EMU_CALLER) - code);
  if (at >= weights.size()) return;
  Since& did = since_of(thread->warp);
  go_on(did.path, static_cast<uint32_t>(at));
  if (weights[at] == 0) return;
  did.counts[kInstructions] += weights[at];
  did.hash = (did.hash ^ at) * 0x9e3779b97f4a7c15ull;
  did.hash ^= did.hash >> 32;
}

// Keeps the records of the launches to come, until kb_emu_configure. `weights`: instructions of
// the blocks of a library that is loaded at `code`, by offset.
KB_EMU_EXPORT void kb_emu_time(const void* code, const uint16_t* weights, uint64_t count) {
  kb::emu::forget_timing();
  kb::emu::code = static_cast<const std::byte*>(code);
  kb::emu::weights.assign(weights, weights + count);
  kb::emu::timing = true;
}

// The records, valid until the next launch or kb_emu_configure.
KB_EMU_EXPORT const void* kb_emu_timed(uint64_t* count) {
  *count = kb::emu::records.size();
  return kb::emu::records.data();
}

// The paths between records that a record of accesses names by their number, counted from 1: of
// each its instructions, its length, itself. Valid as the records are.
KB_EMU_EXPORT const uint32_t* kb_emu_timed_paths(uint64_t* count) {
  *count = kb::emu::paths.size();
  return kb::emu::paths.data();
}
