// What went wrong, collected over launches. Repeats of a finding, by class and both places, are
// counted.
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "assumptions.hpp"
#include "collected.hpp"
#include "runner.hpp"

extern "C" void kb_emu_at_finding(uint64_t index);  // trace.cpp

namespace kb::emu {

namespace {

std::mutex guard;
Collected collected;
std::map<std::tuple<Class, Pc, Pc, bool>, size_t> known;
std::atomic<bool> fatal{false};
std::atomic<bool> another_elected{false};
std::string first_fatal;
uint64_t total = 0;
uint64_t before_launch = 0;
std::optional<Finding> last_resort;
std::string report_text;

bool may_be_formal(const Finding& finding) {
  return finding.formal || finding.one_warp || finding.same_value || finding.reader.has_value();
}

// How many there are already: what the reader may find formal takes no error's place.
size_t as_harmless_as(const Finding& finding) {
  const std::vector<Found>& all = collected.findings;
  return static_cast<size_t>(std::count_if(all.begin(), all.end(), [&finding](const Found& each) {
    return may_be_formal(each.finding) == may_be_formal(finding);
  }));
}

// The running thread, or the CTA of the running task, is where it happened. Launches go on after a
// finding that `report` makes, so that one run shows several.
void record(Finding&& finding, bool ends_launch) {
  const std::lock_guard lock(guard);
  const auto key = std::make_tuple(finding.kind, finding.pc, finding.other_pc, finding.abroad);
  const std::string text = finding.text;
  const Class kind = finding.kind;
  ++total;
  if (const auto found = known.find(key); found != known.end()) {
    Found& same = collected.findings[found->second];
    ++same.count;
    same.finding.one_warp &= finding.one_warp;
    same.finding.formal &= finding.formal;
    same.finding.same_value &= finding.same_value;
    same.finding.follows &= finding.follows;
    same.finding.apart = std::min(same.finding.apart, finding.apart);
    same.readers.insert(finding.reader.value_or(-1));
  } else if (!ends_launch && as_harmless_as(finding) >= options().max_findings) {
    ++collected.dropped;
  } else {
    const Where where = finding.where.value_or(where_now());
    known.emplace(key, collected.findings.size());
    const int32_t reader = finding.reader.value_or(-1);
    collected.findings.push_back(
        {.finding = std::move(finding), .where = where, .readers = {reader}});
    kb_emu_at_finding(collected.findings.size() - 1);
  }
  if (ends_launch && !fatal.exchange(true)) {
    first_fatal = std::string(class_name(kind)) + ": " + text;
  }
}

}  // namespace

Where where_now() {
  const Thread* thread = current_thread;
  const Cta* cta = thread != nullptr ? thread->cta : current_task_cta;
  if (cta == nullptr) return {};
  return {cta->index, cta->rank, thread != nullptr ? static_cast<int32_t>(thread->index) : -1,
          cta->shared_type};
}

// The first word stands for the others at the same lines.
void keep_once(std::vector<Found>& among, Finding finding) {
  for (Found& each : among) {
    if (each.finding.kind != finding.kind || each.finding.pc != finding.pc) continue;
    if (each.finding.other_pc != finding.other_pc) continue;
    ++each.count;
    each.finding.follows &= finding.follows;
    each.finding.apart = std::min(each.finding.apart, finding.apart);
    return;
  }
  if (among.size() >= options().max_findings) return;
  const Where where = finding.where.value_or(where_now());
  among.push_back({.finding = std::move(finding), .where = where, .readers = {-1}});
}

void note_cause(Finding finding) {
  const std::lock_guard lock(guard);
  keep_once(collected.causes, std::move(finding));
}

void note(Finding finding) {
  const std::lock_guard lock(guard);
  keep_once(collected.notes, std::move(finding));
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

// Those beyond 512 are not read.
void note_waits(const std::vector<WaitRecord>& found) {
  const std::lock_guard lock(guard);
  const CtaIndex* last = nullptr;
  for (const WaitRecord& each : found) {
    if (each.wait.kind == Wait::Kind::kGlobal) {
      const CtaIndex& cta = each.cta;
      const bool same = last != nullptr && last->x == cta.x && last->y == cta.y && last->z == cta.z;
      collected.ctas_at_words += !same;
      last = &cta;
    }
    if (collected.waits.size() < 512) collected.waits.push_back(each);
  }
}

void note_memory(const Cta& cta, Pc pc) {
  if (!checking() || cta.shared_type == nullptr) return;
  uint32_t columns = 0;
  for (const TmemAllocation& each : cta.tensor.allocations) columns += each.columns;
  const std::lock_guard lock(guard);
  for (MemoryRecord& each : collected.memory) {
    if (each.shared_type != cta.shared_type) continue;
    each.columns = std::max(each.columns, columns);
    return;
  }
  collected.memory.push_back({pc, cta.shared_type, cta.shared_bytes, columns});
}

void note_another_elected() {
  another_elected.store(true, std::memory_order_relaxed);
}

// A new collection, as kb_emu_configure asks for it.
void clear_findings() {
  const std::lock_guard lock(guard);
  collected = {};
  known.clear();
  fatal.store(false);
  first_fatal.clear();
  another_elected.store(false);
  forget_assumptions();
}

// The text is kept until the next call: it crosses a C interface.
const char* findings_json(uint64_t launches, uint64_t switch_count, double seconds) {
  const std::lock_guard lock(guard);
  report_text = collected_json(collected) + ",\"launches\":" + std::to_string(launches) +
                ",\"another_elected\":" + (another_elected.load() ? "true" : "false") +
                ",\"switches\":" + std::to_string(switch_count) +
                ",\"seconds\":" + std::to_string(seconds) + "}";
  return report_text.c_str();
}

}  // namespace kb::emu
