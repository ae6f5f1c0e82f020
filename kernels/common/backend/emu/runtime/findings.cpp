// What went wrong, collected over launches and handed to the reader as JSON. Repeats of a finding,
// by class and both places, are counted; of a hang, every thread's wait is described.
#include "findings.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "assumptions.hpp"
#include "global_shadow.hpp"
#include "runner.hpp"
#include "watchdog.hpp"

extern "C" void kb_emu_at_finding(uint64_t index);  // trace.cpp

namespace kb::emu {

namespace {

constexpr const char* kNames[] = {
    "hang",
    "race",
    "early-read",
    "overwrite",
    "proxy-fence",
    "tensor-map-proxy",
    "arrival-count",
    "transaction-count",
    "phase",
    "barrier-state",
    "named-barrier",
    "divergence",
    "tmem-allocation",
    "tmem-bounds",
    "descriptor",
    "alignment",
    "out-of-bounds",
    "exit",
    "crash",
    "order",
    "unwritten",
    "not-reset",
};

struct Found {
  Finding finding;
  uint64_t count = 1;
  Where where;
  std::set<int32_t> readers = {};
};

// Lanes of one warp that wait for the same thing.
struct WaitRecord {
  CtaIndex cta;
  uint32_t rank;
  uint32_t warp;
  uint32_t lanes;
  Wait wait;
  bool has_barrier;
  uint64_t phase;
  uint32_t pending;
  uint32_t expected;
  int64_t tx;
  Pc init_pc;
  const char* shared_type;
};

std::mutex guard;
std::vector<Found> all;
std::vector<Found> causes;
std::map<std::tuple<Class, Pc, Pc>, size_t> known;
std::vector<WaitRecord> waits;
std::atomic<bool> fatal{false};
std::string first_fatal;
uint64_t dropped = 0;
uint64_t total = 0;
uint64_t before_launch = 0;
std::optional<Finding> last_resort;

bool may_be_formal(const Finding& finding) {
  return finding.formal || finding.one_warp || finding.same_value || finding.reader.has_value();
}

// How many there are already: what the reader may find formal takes no error's place.
size_t as_harmless_as(const Finding& finding) {
  return static_cast<size_t>(std::count_if(all.begin(), all.end(), [&finding](const Found& each) {
    return may_be_formal(each.finding) == may_be_formal(finding);
  }));
}

// The running thread, or the CTA of the running task, is where it happened. Launches go on after a
// finding that `report` makes, so that one run shows several.
void record(Finding&& finding, bool ends_launch) {
  const std::lock_guard lock(guard);
  const auto key = std::make_tuple(finding.kind, finding.pc, finding.other_pc);
  const std::string text = finding.text;
  const Class kind = finding.kind;
  ++total;
  if (const auto found = known.find(key); found != known.end()) {
    ++all[found->second].count;
    all[found->second].finding.one_warp &= finding.one_warp;
    all[found->second].finding.formal &= finding.formal;
    all[found->second].finding.same_value &= finding.same_value;
    all[found->second].readers.insert(finding.reader.value_or(-1));
  } else if (!ends_launch && as_harmless_as(finding) >= options().max_findings) {
    ++dropped;
  } else {
    const Where where = finding.where.value_or(where_now());
    known.emplace(key, all.size());
    const int32_t reader = finding.reader.value_or(-1);
    all.push_back({.finding = std::move(finding), .where = where, .readers = {reader}});
    kb_emu_at_finding(all.size() - 1);
  }
  if (ends_launch && !fatal.exchange(true)) {
    first_fatal = std::string(kNames[static_cast<size_t>(kind)]) + ": " + text;
  }
}

}  // namespace

// ---- JSON ------------------------------------------------------------------------------------

void put_string(std::string& out, std::string_view text) {
  out += '"';
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += ' ';
    } else {
      out += c;
    }
  }
  out += '"';
}

// Library and offset: the reader has the library's symbols, also after the process has ended.
void put_pc(std::string& out, Pc pc) {
  Dl_info info;
  // A return address belongs to the instruction before it.
  const auto* at = static_cast<const char*>(pc) - 1;
  if (pc == nullptr || dladdr(at, &info) == 0 || info.dli_fname == nullptr) {
    out += "null";
    return;
  }
  out += "{\"module\":";
  put_string(out, info.dli_fname);
  out += ",\"offset\":" + std::to_string(at - static_cast<const char*>(info.dli_fbase)) + "}";
}

namespace {

void put_cta(std::string& out, const CtaIndex& cta) {
  out += '[';
  out += std::to_string(cta.x);
  out += ',';
  out += std::to_string(cta.y);
  out += ',';
  out += std::to_string(cta.z);
  out += ']';
}

// None unless each repeat was a race of a load with a store of one CTA.
void put_readers(std::string& out, const std::set<int32_t>& readers) {
  out += '[';
  if (*readers.begin() >= 0) {
    for (const int32_t each : readers) {
      if (out.back() != '[') out += ',';
      out += std::to_string(each);
    }
  }
  out += ']';
}

// The fields are those that kernelbench reads; offsets of -1 mean none.
void put_finding(std::string& out, const Found& found) {
  const Finding& finding = found.finding;
  out += "{\"class\":";
  put_string(out, kNames[static_cast<size_t>(finding.kind)]);
  out += ",\"text\":";
  put_string(out, finding.text);
  out += ",\"pc\":";
  put_pc(out, finding.pc);
  out += ",\"other_pc\":";
  put_pc(out, finding.other_pc);
  out += ",\"count\":" + std::to_string(found.count) + ",\"cta\":";
  put_cta(out, found.where.cta);
  out += ",\"rank\":" + std::to_string(found.where.rank) +
         ",\"thread\":" + std::to_string(found.where.thread) +
         ",\"shared_offset\":" + std::to_string(finding.shared_offset) +
         ",\"tmem_column\":" + std::to_string(finding.tmem_column) +
         ",\"other_thread\":" + std::to_string(finding.other_thread) +
         ",\"one_warp\":" + (finding.one_warp ? "true" : "false") +
         ",\"formal\":" + (finding.formal ? "true" : "false") +
         ",\"same_value\":" + (finding.same_value ? "true" : "false") + ",\"readers\":";
  put_readers(out, found.readers);
  out += ",\"buffer\":";
  put_string(out, finding.buffer);
  out += ",\"shared_type\":";
  put_string(out, found.where.shared_type ? found.where.shared_type : "");
  out += "}";
}

void put_findings(std::string& out, const std::vector<Found>& findings) {
  for (size_t i = 0; i < findings.size(); ++i) {
    if (i > 0) out += ",";
    put_finding(out, findings[i]);
  }
}

const char* wait_name(Wait::Kind kind) {
  switch (kind) {
    case Wait::Kind::kMbarrier:
      return "mbarrier";
    case Wait::Kind::kNamedBarrier:
      return "named-barrier";
    case Wait::Kind::kWarp:
      return "warp";
    case Wait::Kind::kCluster:
      return "cluster";
    case Wait::Kind::kBulkGroup:
      return "bulk-group";
    case Wait::Kind::kTmemAlloc:
      return "tmem-alloc";
    case Wait::Kind::kTmemLoad:
      return "tmem-load";
    case Wait::Kind::kGlobal:
      return "global";
    case Wait::Kind::kCopies:
      return "cp.async";
    case Wait::Kind::kWgmma:
      return "wgmma";
    default:
      return "none";
  }
}

// Beside the wait itself, what its barrier still lacks.
void put_wait(std::string& out, const WaitRecord& record) {
  out += "{\"cta\":";
  put_cta(out, record.cta);
  out += ",\"rank\":" + std::to_string(record.rank) + ",\"warp\":" + std::to_string(record.warp) +
         ",\"lanes\":" + std::to_string(record.lanes) + ",\"kind\":";
  put_string(out, wait_name(record.wait.kind));
  out += ",\"pc\":";
  put_pc(out, record.wait.pc);
  out += ",\"object\":" + std::to_string(record.wait.object) +
         ",\"parity\":" + std::to_string(record.wait.value);
  if (record.has_barrier) {
    out += ",\"phase\":" + std::to_string(record.phase) + ",\"tx\":" + std::to_string(record.tx) +
           ",\"init_pc\":";
    put_pc(out, record.init_pc);
  }
  if (record.expected != 0) {
    out += ",\"pending\":" + std::to_string(record.pending) +
           ",\"expected\":" + std::to_string(record.expected);
  }
  out += ",\"shared_type\":";
  put_string(out, record.shared_type ? record.shared_type : "");
  out += "}";
}

std::string report_text;
std::string launch_text;

}  // namespace

Where where_now() {
  const Thread* thread = current_thread;
  const Cta* cta = thread != nullptr ? thread->cta : current_task_cta;
  if (cta == nullptr) return {};
  return {cta->index, cta->rank, thread != nullptr ? static_cast<int32_t>(thread->index) : -1,
          cta->shared_type};
}

// The first word stands for the others that are carried along at the same lines.
void note_cause(Finding finding) {
  const std::lock_guard lock(guard);
  for (Found& each : causes) {
    if (each.finding.pc != finding.pc || each.finding.other_pc != finding.other_pc) continue;
    ++each.count;
    return;
  }
  if (causes.size() >= options().max_findings) return;
  causes.push_back({.finding = std::move(finding), .where = where_now()});
}

void report(Finding finding) {
  record(std::move(finding), false);
}

void report_if_nothing_else(Finding finding) {
  finding.where = where_now();
  note_cause(finding);
  const std::lock_guard lock(guard);
  if (!last_resort) last_resort = std::move(finding);
}

void end_launch(Finding finding) {
  record(std::move(finding), true);
}

// In a fiber the scheduler takes over for good; a task unwinds to where it was started.
void fail(Finding finding) {
  end_launch(std::move(finding));
  // A thread is left where it is and never runs again: nothing may be thrown through a hook, which
  // the compiler takes for a function that does not throw.
  if (current_runner->on_fiber()) current_runner->yield_to_scheduler();
  throw Abandon{};
}

bool abandoned() {
  return fatal.load(std::memory_order_relaxed);
}

uint64_t findings_count() {
  const std::lock_guard lock(guard);
  return total;
}

// Findings of earlier launches stay; only what ended one is forgotten.
void begin_launch_findings() {
  fatal.store(false);
  first_fatal.clear();
  last_resort.reset();
  before_launch = total;
}

void end_launch_findings() {
  if (last_resort && total == before_launch) record(*std::exchange(last_resort, {}), false);
}

std::string launch_error() {
  const std::lock_guard lock(guard);
  return fatal.load() ? first_fatal : std::string();
}

// Lanes of a warp that wait for the same thing at the same place are one entry.
void report_hang(std::deque<Cluster>& clusters, Pc running) {
  uint32_t threads = 0;
  uint32_t run = 0;
  settle_counters();  // a race comes before the hang that it may have led to
  {
    const std::lock_guard lock(guard);
    if (fatal.load()) return;
    for (Cluster& cluster : clusters) {
      for (Cta& cta : cluster.ctas) {
        for (Warp& warp : cta.warps) {
          uint32_t done = 0;
          for (uint32_t lane = 0; lane < warp.count; ++lane) {
            const Thread& thread = warp.threads[lane];
            if (thread.exited || done >> lane & 1) continue;
            if (thread.wait.kind == Wait::Kind::kNone || thread.wait.kind == Wait::Kind::kYield) {
              ++run;
              continue;
            }
            WaitRecord entry{.cta = cta.index,
                             .rank = cta.rank,
                             .warp = warp.index,
                             .lanes = 0,
                             .wait = thread.wait,
                             .has_barrier = false,
                             .phase = 0,
                             .pending = 0,
                             .expected = 0,
                             .tx = 0,
                             .init_pc = nullptr,
                             .shared_type = cta.shared_type};
            for (uint32_t other = lane; other < warp.count; ++other) {
              const Thread& same = warp.threads[other];
              if (same.exited || same.wait.pc != thread.wait.pc ||
                  same.wait.object != thread.wait.object || same.wait.value != thread.wait.value) {
                continue;
              }
              entry.lanes |= 1u << other;
              ++threads;
            }
            done |= entry.lanes;
            if (thread.wait.kind == Wait::Kind::kMbarrier) {
              const uint16_t index = cta.barrier_index[thread.wait.object / 8];
              const Barrier& barrier = cta.barriers[index - 1];
              entry.has_barrier = true;
              entry.phase = barrier.phase;
              entry.pending = barrier.pending;
              entry.expected = barrier.expected;
              entry.tx = barrier.tx;
              entry.init_pc = barrier.init_pc;
            }
            if (thread.wait.kind == Wait::Kind::kNamedBarrier) {
              const NamedBarrier& barrier = cta.named[thread.wait.object];
              entry.expected = barrier.expected;
              entry.pending = barrier.expected - barrier.arrived;
            }
            if (waits.size() < 512) waits.push_back(entry);
          }
        }
      }
    }
  }
  const std::string wait = std::to_string(threads) + " threads wait";
  std::string text = "nothing can run and nothing is pending: " + wait;
  if (running != nullptr || overdue()) {
    char limit[32];
    std::snprintf(limit, sizeof limit, "%g s", options().limit_ms / 1000.0);
    text = std::string("the kernel has not ended after ") + limit + ": " + wait + ", " +
           std::to_string(run) + " can run";
  }
  record({.kind = Class::kHang, .pc = running, .text = std::move(text)}, true);
}

// A new collection, as kb_emu_configure asks for it.
void clear_findings() {
  const std::lock_guard lock(guard);
  all.clear();
  causes.clear();
  known.clear();
  waits.clear();
  dropped = 0;
  fatal.store(false);
  first_fatal.clear();
  forget_assumptions();
}

// The text is kept until the next call: it crosses a C interface.
const char* findings_json(uint64_t launches, uint64_t switch_count, double seconds) {
  const std::lock_guard lock(guard);
  report_text = "{\"findings\":[";
  put_findings(report_text, all);
  report_text += "],\"causes\":[";
  put_findings(report_text, causes);
  report_text += "],\"waits\":[";
  for (size_t i = 0; i < waits.size(); ++i) {
    if (i > 0) report_text += ",";
    put_wait(report_text, waits[i]);
  }
  report_text += "],\"dropped\":" + std::to_string(dropped) +
                 ",\"assumptions\":" + assumptions_json() +
                 ",\"launches\":" + std::to_string(launches) +
                 ",\"switches\":" + std::to_string(switch_count) +
                 ",\"seconds\":" + std::to_string(seconds) + "}";
  return report_text.c_str();
}

}  // namespace kb::emu
