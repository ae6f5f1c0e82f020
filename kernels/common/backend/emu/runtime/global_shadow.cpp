// The shadow of global memory: of each word the last writer, and readers since. An access is in
// order with an earlier one of its launch if the actor's clocks cover it: those of its own cluster,
// or what releases at the scope of the GPU have made known of others (PTX ISA 9.1, 8.5 to 8.9);
// with one of an earlier launch unless grids overlap (grids.cpp).
#include "global_shadow.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "api_core.hpp"
#include "api_ptx.hpp"
#include "assumptions.hpp"
#include "grids.hpp"
#include "operations.hpp"
#include "runner.hpp"

namespace kb::emu {

namespace {

constexpr uint32_t kWholeWord = 0xf;

// ---- places ----------------------------------------------------------------------------------

struct Place {
  Pc pc = nullptr;
  const char* what = "an access";
};
std::mutex places_guard;
std::vector<Place> places{1};  // the first: unknown
std::unordered_map<Pc, uint16_t> place_numbers;

}  // namespace

uint16_t place_of(Pc pc, const char* what) {
  constexpr size_t kKept = 64;
  struct Kept {
    Pc pc = nullptr;
    uint16_t number = 0;
  };
  thread_local Kept kept[kKept];
  Kept& last = kept[reinterpret_cast<uintptr_t>(pc) / 4 % kKept];
  if (last.pc == pc) return last.number;
  const std::lock_guard lock(places_guard);
  const auto [found, first] = place_numbers.try_emplace(pc, 0);
  if (first && places.size() <= UINT16_MAX) {
    found->second = static_cast<uint16_t>(places.size());
    places.push_back({pc, what});
  }
  last = {pc, found->second};
  return last.number;
}

namespace {

// Whether an OS thread comes by a place of a launch for the first time, as far as it remembers.
bool first_at(Pc pc, uint64_t serial) {
  thread_local std::pair<Pc, uint64_t> kept[64];
  std::pair<Pc, uint64_t>& last = kept[reinterpret_cast<uintptr_t>(pc) / 4 % std::size(kept)];
  return std::exchange(last, {pc, serial}) != last;
}

}  // namespace

// Two at most. Of one launch they are of different clusters: the first that came, and the last. A
// reader of another operation is kept as long as nothing orders it with the newest.
void keep_other(Access* others, const Access& access, const StreamOperation* operation) {
  if (others[0] == access) return;
  if (others[0].serial != access.serial) {
    const auto beside = [operation](const Access& each) {
      return operation != nullptr && each.serial != 0 && !behind(*operation, each, true, false);
    };
    // The first may be of an earlier schedule of the same launch.
    others[1] = beside(others[0]) ? others[0] : beside(others[1]) ? others[1] : Access{};
    others[0] = access;
  } else if (others[0].cluster == access.cluster && others[0].atomic == access.atomic) {
    others[0] = access;
  } else if (operation == nullptr || others[1].serial == 0 || others[1].serial == access.serial) {
    others[1] = access;
  }
}

namespace {

// ---- one access ------------------------------------------------------------------------------

// Pages of a buffer, which are for one OS thread at a time, if there are several. All take their
// flags in one order.
class Held {
 public:
  Held(Words& words, const Launch& launch, size_t first, size_t last) : words_(words) {
    if (launch.os_threads == 1) return;
    const size_t begin = first / Words::kPage, end = last / Words::kPage + 1;
    for (size_t page = begin; page < std::min(end, begin + Words::kFlags); ++page) {
      flags_ |= 1u << page % Words::kFlags;
    }
    each([](std::atomic_flag& flag) {
      while (flag.test_and_set(std::memory_order_acquire)) {
      }
    });
  }
  ~Held() {
    each([](std::atomic_flag& flag) { flag.clear(std::memory_order_release); });
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  template <typename Do>
  void each(Do what) {
    for (uint32_t left = flags_; left != 0; left &= left - 1) {
      what(words_.busy[static_cast<uint32_t>(std::countr_zero(left))].flag);
    }
  }
  Words& words_;
  uint32_t flags_ = 0;
};

class Accessing {
 public:
  Accessing(Region& region, const void* pointer, size_t bytes, const Actor& actor, bool writing)
      : region_(region),
        actor_(actor),
        thread_(self()),
        cluster_(*thread_.cta->cluster),
        launch_(*cluster_.launch),
        writing_(writing),
        offset_(static_cast<size_t>(static_cast<const std::byte*>(pointer) - region.begin)),
        end_(std::min(offset_ + bytes, static_cast<size_t>(region.end - region.begin))),
        words_(words_of(region)),
        holds_(region.holds && !words_.fresh),
        held_(words_, launch_, offset_ / 4, end_ > offset_ ? (end_ - 1) / 4 : offset_ / 4) {
    mine_ = {.serial = static_cast<uint32_t>(launch_.serial),
             .epoch = actor.epoch,
             .cluster = std::min(cluster_.id, Access::kManyClusters),
             .atomic = actor.atomic,
             .scope = static_cast<uint32_t>(actor.scope),
             .returns = actor.returns,
             .async = actor.async,
             .bytes = 0,
             .written = 0,
             .component = static_cast<uint16_t>(actor.component),
             .triggered = thread_.cta->triggered,
             .place = place_of(actor.pc, actor.what)};
    if (!actor.atomic && !actor.async) thread_.accessed = actor.epoch;
  }

  bool load() {
    bool any = holds_;
    Access checked = {};
    // The two lie far from each other, and rarely in a cache.
    if (offset_ < end_) __builtin_prefetch(words_.make_others(offset_ / 4));
    const bool atomics = launch_.runs(words_.others_in) && !mine_.atomic;
    for (size_t word = offset_ / 4; word * 4 < end_; ++word) {
      mine_.bytes = mask(word);
      const Access& writer = words_.writer(word);
      if (mine_.atomic && launch_.operation != nullptr) meet_word(region_, word, writer, actor_);
      if (writer != checked) {
        check(writer, true, word);
        if (mine_.bytes == kWholeWord) checked = writer;
      }
      if (atomics && writer.atomic) check_others(word, true);
      if (actor_.cached) check_cached(writer, word);
      any |= (writer.written & mine_.bytes) != 0;
      check_written(writer, word);
      keep_other(words_.make_others(word), mine_, launch_.operation);
    }
    words_.others_in = launch_.serial;
    return any;
  }

  void store() {
    Access checked = {};
    const bool overlaps = launch_.open_strictly != launch_.serial ||
                          launch_.streams_since != launch_.serial || launch_.operation != nullptr;
    const bool others = words_.others(0) != nullptr && (overlaps || launch_.runs(words_.others_in));
    words_.written_in = launch_.serial;
    for (size_t word = offset_ / 4; word * 4 < end_; ++word) {
      mine_.bytes = mask(word);
      Access& writer = words_.writer(word);
      if (writer != checked) {
        check(writer, true, word);
        if (mine_.bytes == kWholeWord) checked = writer;
      }
      if (others) check_others(word, false);
      if (mine_.atomic) {
        if (launch_.operation != nullptr) meet_word(region_, word, writer, actor_);
        check_written(writer, word);
        keep_atomic(writer, word);
      } else if (others && mine_.bytes == kWholeWord) {
        std::fill_n(words_.others(word), 2, Access{});
      }
      const uint32_t written = writer.written | mine_.bytes;
      const bool same = writer.serial == mine_.serial && writer.cluster == mine_.cluster &&
                        writer.component == mine_.component;
      // What is ordered with this access is so with the thread's earlier one.
      const uint32_t bytes = same ? writer.bytes | mine_.bytes : mine_.bytes;
      writer = mine_;
      writer.bytes = bytes & 0xf;
      writer.written = written & 0xf;
    }
  }

 private:
  uint32_t mask(size_t word) const {
    const size_t low = word * 4 < offset_ ? offset_ - word * 4 : 0;
    const size_t high = std::min<size_t>(4, end_ - word * 4);
    return ((1u << high) - 1) & ~((1u << low) - 1) & kWholeWord;
  }

  bool in_order(const Access& earlier) const {
    if (earlier.cluster == Access::kManyClusters) return true;
    if (earlier.cluster == mine_.cluster) {
      return actor_.knows->seen.covers(earlier.component, earlier.epoch);
    }
    const Abroad* abroad = actor_.knows->abroad.get();
    return abroad != nullptr && abroad->covers(earlier.cluster, earlier.component, earlier.epoch);
  }

  // Whether it would be if fences of other threads counted, or none were needed: a strong access
  // behind an atomic is made behind it, and past the caches.
  bool in_supposed_order(const Access& earlier) const {
    const auto covers = [&](const Abroad::Pointer& known) {
      return known != nullptr && known->covers(earlier.cluster, earlier.component, earlier.epoch);
    };
    return covers(actor_.knows->supposed) || (mine_.atomic && covers(actor_.knows->observed));
  }

  bool home(const Access& earlier) const {
    return earlier.cluster == mine_.cluster && earlier.component < threads_in_cluster() &&
           earlier.component / launch_.threads == actor_.cta_rank;
  }
  // PTX: 8.6: strong accesses that are in no order need a scope each that includes the other.
  bool atomic_with(const Access& earlier) const {
    if (!earlier.atomic || !mine_.atomic) return false;
    const auto scope = static_cast<Scope>(std::min(earlier.scope, mine_.scope));
    return scope >= Scope::kGpu || home(earlier) ||
           (scope == Scope::kCluster && earlier.cluster == mine_.cluster);
  }
  uint32_t threads_in_cluster() const { return launch_.threads * launch_.cluster; }

  // Reports once for each access, of its first word.
  // Assumption: of a step's C++ code, whose values do not show, two threads of one CTA that store
  // to one word store the same value.
  void check(const Access& earlier, bool wrote, size_t word) {
    if (earlier.serial == 0 || reported_ || (earlier.bytes & mine_.bytes) == 0) return;
    if (atomic_with(earlier)) return;
    if (earlier.serial != mine_.serial) {
      check_other_grid(earlier, wrote, word);
      return;
    }
    if (in_order(earlier)) return;
    const bool in_cta = home(earlier) && !earlier.async && !actor_.async;
    if (writing_ && wrote && in_cta && (actor_.same || !runs_ptx())) return;
    if (writing_ && !actor_.async && observed_by_atomic(thread_, earlier)) {
      assume(Assumption::kDependentStores);
      return;
    }
    reported_ = true;
    report_race(earlier, wrote, word);
  }

  // Of another operation of the program.
  void check_operation(const Access& earlier, bool wrote, size_t word) {
    const StreamOperation& mine = *launch_.operation;
    const bool waited = mine.ahead != nullptr && knows_wait(thread_);
    const StreamOperation* other = operation_of(earlier.serial);
    const bool beside = launch_.is_beside(other);
    // Or of a schedule before.
    if (beside && (!launch_.runs(earlier.serial) || in_order(earlier))) return;
    const bool by_host = other != nullptr && other->kind == StreamOperation::Kind::kHost;
    const bool strong = by_host && mine_.atomic;  // the host may poll it: what fails tells
    if (strong && static_cast<Scope>(mine_.scope) == Scope::kSystem) return;
    const Handed handed =
        beside ? handed_beside(earlier) : handed_over(mine, earlier, wrote, waited, actor_.knows);
    const bool after = handed == Handed::kYes;
    if (after && (other == nullptr || other->kind != StreamOperation::Kind::kFree)) return;
    const bool noted = strong || (by_host && several_hosts_poll());
    reported_ = !noted;
    (noted ? note
           : report)({.kind = after ? Class::kOutOfBounds : Class::kRace,
                      .pc = actor_.pc,
                      .other_pc = place_pc(earlier),
                      .formal = handed == Handed::kSupposed,
                      .apart = apart(mine, *other),
                      .buffer = region_.at(word * 4),
                      .text = actor_.what + std::string(writing_ ? " writes " : " reads ") +
                              region_.name + unordered_text(mine, *other, wrote, waited, handed)});
  }

  // Of a grid that runs beside this one.
  Handed handed_beside(const Access& earlier) const {
    if (in_supposed_order(earlier)) return Handed::kSupposed;
    return observed_by_atomic(thread_, earlier) ? Handed::kUnfenced : Handed::kNone;
  }

  void check_other_grid(const Access& earlier, bool wrote, size_t word) {
    if (launch_.operation != nullptr) {
      check_operation(earlier, wrote, word);
      return;
    }
    const bool streams = on_other_stream(launch_, earlier.serial);
    if (!streams && earlier.serial < launch_.open_strictly) return;
    if (!streams && !wrote && !earlier.triggered) return;
    const GridAccess last{earlier.serial, wrote, region_.name, region_.at(word * 4),
                          place_pc(earlier)};
    if (streams) {
      reported_ = true;
      report_streams(last, writing_, actor_.pc, actor_.what);
    } else {
      reported_ = check_grids(last, writing_, actor_.pc, actor_.what);
    }
  }

  // `atomics`: of the two others only those that are.
  void check_others(size_t word, bool atomics) {
    const Access* others = words_.others(word);
    // Atomics before one that has returned a value are what it has seen.
    const Access& writer = words_.writer(word);
    const bool seen = writer.returns && writer.serial == mine_.serial && in_order(writer);
    for (uint32_t i = 0; others != nullptr && i < 2; ++i) {
      if (others[i].atomic ? !seen : !atomics) check(others[i], others[i].atomic, word);
    }
  }

  // PTX: 5.1: global memory holds nothing that PTX promises before something is written there.
  void check_written(const Access& writer, size_t word) {
    const bool reduces = writing_ && mine_.atomic;
    if (holds_ || (actor_.async && !reduces) || reported_ || actor_.overwrites()) return;
    if ((writer.written & mine_.bytes) == mine_.bytes) return;
    if (!words_.fresh) {
      reported_ = true;
    } else if (!first_at(actor_.pc, launch_.serial)) {
      return;
    }
    report_unwritten(region_.begin + word * 4, mine_.atomic, writing_, actor_.pc, actor_.what);
  }

  // CUDA programming guide, "Read/Write Coherency": a fetch from what the same kernel call has
  // written returns undefined data, whoever wrote it; likewise __ldg, "Read-Only Data Cache".
  void check_cached(const Access& writer, size_t word) {
    if (reported_ || writer.serial != mine_.serial || (writer.bytes & mine_.bytes) == 0) return;
    reported_ = true;
    report({.kind = Class::kRace,
            .pc = actor_.pc,
            .other_pc = place_pc(writer),
            .buffer = region_.at(word * 4),
            .text = actor_.what + std::string(" reads ") + region_.name +
                    " that the same launch has written: its cache is not coherent with that"});
  }

  // Atomics of several clusters need no order; who reads the word plainly needs it with each.
  void keep_atomic(const Access& writer, size_t word) {
    if (!writer.atomic || writer.serial == 0) return;
    if (writer.serial == mine_.serial) {
      if (in_order(writer)) return;
      keep_other(words_.make_others(word), writer, launch_.operation);
      words_.others_in = launch_.serial;
    } else if (launch_.operation != nullptr) {
      if (behind(*launch_.operation, writer, true, true)) return;
      keep_other(words_.make_others(word), writer, launch_.operation);
    } else if (region_.allocated && writer.serial < call_began()) {
      note_carried(region_, word, writer, actor_);
    }
  }

  void report_race(const Access& earlier, bool wrote, size_t word);
  std::string why_not(const Access& earlier) const;

  Region& region_;
  const Actor& actor_;
  Thread& thread_;
  const Cluster& cluster_;
  const Launch& launch_;
  const bool writing_;
  const size_t offset_;
  const size_t end_;
  Words& words_;
  const bool holds_;  // something where nothing has been written
  Held held_;
  Access mine_;
  bool reported_ = false;
};

// Of another cluster: why an atomic between the two does not order them.
std::string Accessing::why_not(const Access& earlier) const {
  if (earlier.atomic && mine_.atomic) return ": the scope of an atomic does not reach the other";
  const Abroad* passed = thread_.passed_narrowly.get();
  if (passed != nullptr && passed->covers(earlier.cluster, earlier.component, earlier.epoch)) {
    return ": what that CTA releases has a scope that does not reach this one";
  }
  if (in_supposed_order(earlier)) {
    return ": fences are missing, or other threads have them than those of the atomic and the "
           "access";
  }
  return observed_by_atomic(thread_, earlier) ? ": no fence follows the atomic" : "";
}

// PTX: 8.7: conflicting accesses, not both atomic and in no causality order, are a data race.
void Accessing::report_race(const Access& earlier, bool wrote, size_t word) {
  const std::string done = wrote ? "writes" : "reads";
  Finding finding{.kind = Class::kRace,
                  .pc = actor_.pc,
                  .other_pc = place_pc(earlier),
                  .buffer = region_.at(word * 4)};
  finding.formal = in_supposed_order(earlier);
  finding.same_value = writing_ && wrote && actor_.same;
  finding.abroad = !home(earlier);
  finding.text = actor_.what + std::string(writing_ ? " writes " : " reads ") + region_.name;
  if (earlier.component < threads_in_cluster()) {
    finding.other_thread = static_cast<int32_t>(earlier.component % launch_.threads);
    finding.one_warp = earlier.cluster == mine_.cluster &&
                       lanes_of_one_warp(*thread_.cta, earlier.component, mine_.component);
  }
  if (earlier.cluster == mine_.cluster && earlier.async) {
    finding.kind = writing_ ? Class::kOverwrite : Class::kEarlyRead;
    finding.text +=
        std::string(" that ") + place_what(earlier) + " " + done +
        (writing_ ? ", whose completion was not observed" : ", before its completion was observed");
  } else {
    finding.text += std::string(" that another ") +
                    (home(earlier) ? "thread of the CTA " : "CTA ") + done + ", without order" +
                    why_not(earlier);
  }
  if (home(earlier) && writing_ != wrote) {
    const Where now = where_now();
    finding.reader = writing_ ? finding.other_thread : now.thread;
  }
  const bool plain_load = writing_ ? !wrote && mine_.atomic : earlier.atomic && !mine_.async;
  if (plain_load && !earlier.async) {
    defer_to_word(reinterpret_cast<const uint32_t*>(region_.begin + word * 4), std::move(finding));
  } else {
    report(std::move(finding));
  }
}

}  // namespace

Pc place_pc(const Access& access) {
  const std::lock_guard lock(places_guard);
  return places[access.place].pc;
}

const char* place_what(const Access& access) {
  const std::lock_guard lock(places_guard);
  return places[access.place].what;
}

bool global_watched(const void* pointer, bool writing) {
  if (!checking()) return false;
  const Region* region = region_at(static_cast<const std::byte*>(pointer));
  return region != nullptr && (writing || region->writable);
}

bool global_load(Region& region, const void* pointer, size_t bytes, const Actor& actor) {
  return Accessing(region, pointer, bytes, actor, false).load();
}

void global_store(Region& region, const void* pointer, size_t bytes, const Actor& actor) {
  Accessing(region, pointer, bytes, actor, true).store();
}

bool global_load(const void* pointer, size_t bytes, const Actor& actor) {
  if (!global_watched(pointer, false)) return true;
  return global_load(*region_at(static_cast<const std::byte*>(pointer)), pointer, bytes, actor);
}

void global_store(const void* pointer, size_t bytes, const Actor& actor) {
  if (!global_watched(pointer, true)) return;
  global_store(*region_at(static_cast<const std::byte*>(pointer)), pointer, bytes, actor);
}

// Stricter: PTX lets a kernel read what holds nothing, as long as nothing depends on it. Of a
// program's memory it is noted: the program knows what depends on it.
void report_unwritten(const void* pointer, bool strong, bool writing, Pc pc, const char* what) {
  const Region& region = *region_at(static_cast<const std::byte*>(pointer));
  const auto offset = static_cast<size_t>(static_cast<const std::byte*>(pointer) - region.begin);
  // An atomic that returns what was there may exchange, or compare.
  const bool adds =
      strong && writing &&
      (std::strncmp(what, "red", 3) == 0 || std::strstr(what, "reduction") != nullptr);
  // Who polls a word means its value; data may be read and not be used.
  const bool noted = region.holds && (!strong || writing);
  (noted ? note : report)({.kind = Class::kUnwritten,
                           .pc = pc,
                           .buffer = region.at(offset),
                           .text = std::string(what) + (adds ? " adds to " : " reads ") +
                                   region.name + " that nothing has written" +
                                   (region.allocated || region.holds ? "" : " in this call")});
}

// An atomic: of two CTAs' there is no race.
void global_changed(const void* pointer, size_t bytes, Pc pc, const char* what, bool returns,
                    Scope scope) {
  if (!checking()) return;
  Actor actor = generic_actor(pc, what);
  actor.atomic = true;
  actor.returns = returns;
  actor.scope = scope;
  global_store(pointer, bytes, actor);
}

// For maps in global memory: ordinary stores to one are not seen by the tensormap proxy.
bool written_in_launch(const void* pointer, size_t bytes) {
  Region* region = region_at(static_cast<const std::byte*>(pointer));
  if (region == nullptr || region->words == nullptr) return false;
  const auto first = static_cast<size_t>(static_cast<const std::byte*>(pointer) - region->begin);
  const uint64_t serial = self().cta->cluster->launch->serial;
  for (size_t word = first / 4; word < (first + bytes) / 4; ++word) {
    if (region->words->writer(word).serial == serial) return true;
  }
  return false;
}

// A copy or a memset of the stream: all launches before are over, and what comes later is behind
// it.
void host_wrote(void* pointer, size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(pointer);
  Region* region = region_at(begin);
  if (region == nullptr || (region->holds && !region->allocated)) return;
  if (!checking()) {
    region->holds = true;
    return;
  }
  forget_counters(begin, begin + bytes);
  Words& words = words_of(*region);
  const auto first = static_cast<size_t>(begin - region->begin);
  for (size_t word = first / 4; word < std::min((first + bytes + 3) / 4, words.count); ++word) {
    words.writer(word) = {.written = kWholeWord};
  }
}

}  // namespace kb::emu
