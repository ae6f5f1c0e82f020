// Events of launches, in order (trace.hpp). Their time is their number: nothing here has a
// duration. The last half million are kept.
#include "trace.hpp"

#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "findings.hpp"
#include "runner.hpp"

namespace kb::emu {

bool tracing = false;

namespace {

constexpr size_t kMaxEvents = 500'000;

enum class What : uint8_t { kPrimitive, kWait, kResumed, kIssue, kRun, kDone, kBarrier, kFinding };

// What `a` to `c` are: of a wait its kind, object and value; of an operation its number and pipe;
// of a barrier offset, phase and pending arrivals; of a finding its index.
struct Record {
  uint64_t time;
  What event;
  uint32_t launch = 0;
  uint32_t cluster = 0;
  uint32_t rank = 0;
  int32_t thread = -1;
  Pc pc = nullptr;
  int64_t a = 0;
  int64_t b = 0;
  int64_t c = 0;
};
std::deque<Record> records;
uint64_t now = 0;
uint64_t operations = 0;
const char* shared_type = nullptr;
// The last primitive of each thread: what it issues comes from there.
std::unordered_map<const Thread*, Pc> last;
std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>, std::tuple<uint64_t, uint32_t>> seen;

void add(What event, Pc pc, int64_t a = 0, int64_t b = 0, int64_t c = 0) {
  Record record{.time = now++, .event = event, .pc = pc, .a = a, .b = b, .c = c};
  const Thread* thread = current_thread;
  if (const Cta* cta = thread != nullptr ? thread->cta : current_task_cta) {
    record.launch = static_cast<uint32_t>(cta->cluster->launch->number);
    record.cluster = cta->cluster->id;
    record.rank = cta->rank;
  }
  if (thread != nullptr) record.thread = static_cast<int32_t>(thread->index);
  records.push_back(record);
  if (records.size() > kMaxEvents) records.pop_front();
}

std::string trace_text;

}  // namespace

Pc trace_primitive(Pc pc) {
  if (current_thread == nullptr) return pc;
  last[current_thread] = pc;
  add(What::kPrimitive, pc);
  return pc;
}

void trace_wait(const Wait& wait) {
  if (wait.kind == Wait::Kind::kYield) return;
  add(What::kWait, wait.pc, static_cast<int64_t>(wait.kind), wait.object,
      static_cast<int64_t>(wait.value));
}

void trace_resumed() {
  add(What::kResumed, nullptr);
}

Task traced(Task task, int pipe) {
  const auto number = static_cast<int64_t>(operations++);
  // What a task submits comes from no primitive.
  add(What::kIssue, current_thread != nullptr ? last[current_thread] : nullptr, number, pipe);
  return [task = std::move(task), number] {
    add(What::kRun, nullptr, number);
    task();
    add(What::kDone, nullptr, number);
  };
}

void trace_barriers(const std::deque<Cluster>& clusters) {
  for (const Cluster& cluster : clusters) {
    for (const Cta& cta : cluster.ctas) {
      if (cta.shared_type != nullptr) shared_type = cta.shared_type;
      for (const Barrier& barrier : cta.barriers) {
        const auto launch = static_cast<uint32_t>(cluster.launch->number);
        const auto state = std::make_tuple(barrier.phase, barrier.pending);
        const auto key = std::make_tuple(launch, cluster.id, cta.rank, barrier.offset);
        const auto [known, is_new] = seen.try_emplace(key, state);
        if (!is_new && known->second == state) continue;
        known->second = state;
        records.push_back({.time = now++,
                           .event = What::kBarrier,
                           .launch = launch,
                           .cluster = cluster.id,
                           .rank = cta.rank,
                           .pc = barrier.init_pc,
                           .a = barrier.offset,
                           .b = static_cast<int64_t>(barrier.phase),
                           .c = barrier.pending});
      }
    }
  }
}

void trace_finding(size_t index) {
  add(What::kFinding, nullptr, static_cast<int64_t>(index));
}

void forget_trace() {
  tracing = false;
  records.clear();
  seen.clear();
  last.clear();
  now = operations = 0;
  shared_type = nullptr;
}

}  // namespace kb::emu

#define KB_EMU_EXPORT extern "C" __attribute__((visibility("default")))

// Keeps the events of the launches to come, until kb_emu_configure.
KB_EMU_EXPORT void kb_emu_trace() {
  kb::emu::forget_trace();
  kb::emu::tracing = true;
}

// The events as JSON: [time, event, launch, cluster, rank, thread, place, a, b, c], with places as
// indices into a list; valid until the next call.
KB_EMU_EXPORT const char* kb_emu_trace_events() {
  using kb::emu::Pc;
  std::unordered_map<Pc, size_t> places;
  std::string list;
  std::string& out = kb::emu::trace_text;
  out = "{\"events\":[";
  for (const auto& record : kb::emu::records) {
    const auto [place, is_new] = places.try_emplace(record.pc, places.size());
    if (is_new) {
      if (!list.empty()) list += ',';
      kb::emu::put_pc(list, record.pc);
    }
    if (out.back() != '[') out += ',';
    out += '[';
    for (const int64_t value :
         {static_cast<int64_t>(record.time), static_cast<int64_t>(record.event),
          int64_t{record.launch}, int64_t{record.cluster}, int64_t{record.rank},
          int64_t{record.thread}, static_cast<int64_t>(place->second), record.a, record.b}) {
      out += std::to_string(value) + ',';
    }
    out += std::to_string(record.c) + ']';
  }
  out += "],\"dropped\":" + std::to_string(kb::emu::now - kb::emu::records.size()) +
         ",\"places\":[" + list + "],\"shared_type\":";
  kb::emu::put_string(out, kb::emu::shared_type ? kb::emu::shared_type : "");
  out += '}';
  return out.c_str();
}

// Where a debugger stops: called when a finding is new, with its place in the report.
KB_EMU_EXPORT __attribute__((noinline)) void kb_emu_at_finding(uint64_t index) {
  if (kb::emu::tracing) kb::emu::trace_finding(index);
}
