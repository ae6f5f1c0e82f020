// Records of launches (timing.hpp), kept in memory: 40 bytes each.
#include "timing.hpp"

#include <array>
#include <unordered_map>
#include <unordered_set>
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

enum Kind : uint8_t { kSharedLoad, kSharedStore, kGlobalLoad, kGlobalStore, kParameter };
using Counts = std::array<uint32_t, 5>;

std::vector<Record> records;
std::unordered_map<const Warp*, Counts> accesses;  // since the warp's last record
std::unordered_map<const void*, uint64_t> versions;
std::unordered_set<uint64_t> written;  // pages of global memory, by lane 0
constexpr uint64_t kPageBytes = 4096;
uint64_t barriers = 0;  // initialized

}  // namespace

void timed_record(Op op, Pc pc, uint64_t a, uint64_t b, uint32_t c, uint32_t x, bool any_lane) {
  if (op == Op::kLaunch) {
    accesses.clear();
    records.push_back({op, 0, 0, 0, a, b, c, x, pc});
    return;
  }
  const Thread* thread = current_thread;
  if (thread == nullptr || (thread->lane != 0 && !any_lane)) return;
  const Cluster& cluster = *thread->cta->cluster;
  const auto cta = static_cast<uint32_t>(cluster.id * cluster.ctas.size() + thread->cta->rank);
  const auto warp = static_cast<uint16_t>(thread->warp->index);
  if (thread->lane == 0) {
    Counts& n = accesses[thread->warp];
    if (n != Counts{}) {
      records.push_back({Op::kAccesses, 0, warp, cta,
                         n[kSharedLoad] | uint64_t{n[kSharedStore]} << 32,
                         n[kGlobalLoad] | uint64_t{n[kGlobalStore]} << 32, n[kParameter], 0, pc});
      n = {};
    }
  }
  if ((op == Op::kLoad || op == Op::kAsyncCopy) && written.contains(a / kPageBytes)) x |= kWritten;
  records.push_back({op, static_cast<uint8_t>(thread->lane), warp, cta, a, b, c, x, pc});
}

void timed_access(const void* pointer, bool writing) {
  const Thread& thread = *current_thread;
  const auto* at = static_cast<const std::byte*>(pointer);
  const std::byte* stack = thread.fiber->stack;
  if (thread.lane != 0 || (at >= stack && at < stack + kStackBytes)) return;
  const Cluster& cluster = *thread.cta->cluster;
  const bool shared = at >= cluster.shared_base && static_cast<size_t>(at - cluster.shared_base) <
                                                       cluster.ctas.size() * kSharedStride;
  const bool parameter = !shared && !writing && region_at(at) == nullptr;
  const Kind kind = shared      ? (writing ? kSharedStore : kSharedLoad)
                    : parameter ? kParameter
                                : (writing ? kGlobalStore : kGlobalLoad);
  ++accesses[thread.warp][kind];
  if (kind == kGlobalStore) written.insert(reinterpret_cast<uint64_t>(pointer) / kPageBytes);
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
  versions.clear();
  written.clear();
  barriers = 0;
}

}  // namespace kb::emu

#define KB_EMU_EXPORT extern "C" __attribute__((visibility("default")))

// Keeps the records of the launches to come, until kb_emu_configure.
KB_EMU_EXPORT void kb_emu_time() {
  kb::emu::forget_timing();
  kb::emu::timing = true;
}

// The records, valid until the next launch or kb_emu_configure.
KB_EMU_EXPORT const void* kb_emu_timed(uint64_t* count) {
  *count = kb::emu::records.size();
  return kb::emu::records.data();
}
