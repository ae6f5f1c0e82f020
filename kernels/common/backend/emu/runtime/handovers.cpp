// What a launch releases by words of global memory, for launches of a program that nothing else
// orders with it: kernels on two streams that run beside each other. PTX's causality order (8.9)
// knows no launches: what a thread acquires of one, it acquires of whoever has released it.
//
// Clusters of earlier launches have numbers of their own in Abroad, from kForeign on, so that all
// that hands knowledge on inside a launch hands on this, too.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "global_shadow.hpp"
#include "operations.hpp"
#include "runner.hpp"

namespace kb::emu {

namespace {

constexpr uint32_t kForeign = 1u << 31;

// By one word, of one launch.
struct Left {
  const StreamOperation* by;
  Released released;
};
std::map<const void*, std::vector<Left>> left_by_word;
Released overwritten;  // what words released that the host or a copy has written since
std::vector<StreamOperation*> releasing;
std::vector<StreamOperation*> acquiring;
uint32_t next_number = kForeign;
// What the host knew when it released something, by the number of the first store since then.
std::vector<std::pair<uint32_t, Past>> host_knew;
// Operations of streams that have released something: the first has the number kOfStream.
std::vector<const StreamOperation*> releasing_by_words;

bool knows_store(const Abroad& known, uint32_t number) {
  return known.any_of(kOfHost + number, UINT32_MAX);
}

bool covers_access(const Abroad* known, const StreamOperation& by, const Access& access) {
  if (known == nullptr) return false;
  if (by.kind == StreamOperation::Kind::kHost && by.line == 0) {
    return knows_store(*known, by.number);
  }
  if (std::any_of(host_knew.begin(), host_knew.end(), [&](const auto& each) {
        return knows_store(*known, each.first) && each.second.covers(by);
      })) {
    return true;
  }
  for (uint32_t at = 0; at < releasing_by_words.size(); ++at) {
    const uint32_t number = kOfStream + at;
    if (known->any_of(number, number + 1) && releasing_by_words[at]->before.covers(by)) return true;
  }
  const StreamOperation::Numbers& numbers = by.numbers;
  // Of its other schedules nothing is kept: they are taken for the last one.
  if (access.serial == numbers.serial && access.cluster != Access::kManyClusters) {
    if (known->covers(numbers.first + access.cluster, access.component, access.epoch)) return true;
  } else if (known->any_of(numbers.first, numbers.last)) {
    return true;
  }
  // What had happened before a launch that is known of.
  return std::any_of(releasing.begin(), releasing.end(), [&](const StreamOperation* each) {
    return each != &by && known->any_of(each->numbers.first, each->numbers.last) &&
           (each->waits ? each->waited : each->before).covers(by);
  });
}

// Whether it releases an access, at a scope that does not reach another GPU.
bool releases_narrowly(const StreamOperation& by, const Access& access) {
  return std::any_of(left_by_word.begin(), left_by_word.end(), [&](const auto& word) {
    return std::any_of(word.second.begin(), word.second.end(), [&](const Left& left) {
      return left.by == &by && covers_access(left.released.certain.get(), by, access) &&
             !covers_access(left.released.of_system.get(), by, access);
    });
  });
}

void remember(std::vector<StreamOperation*>& among, StreamOperation& operation) {
  if (std::find(among.begin(), among.end(), &operation) == among.end()) {
    among.push_back(&operation);
  }
}

}  // namespace

bool is_released(const StreamOperation& by, const Access& access) {
  const auto covers = [&](const Released& released) {
    return covers_access(released.certain.get(), by, access) ||
           covers_access(released.supposed.get(), by, access);
  };
  return covers(overwritten) ||
         std::any_of(left_by_word.begin(), left_by_word.end(), [&](auto& word) {
           return std::any_of(word.second.begin(), word.second.end(),
                              [&](const Left& left) { return covers(left.released); });
         });
}

Released released_before(const void* word) {
  Released all;
  const auto found = left_by_word.find(word);
  if (found == left_by_word.end()) return all;
  for (const Left& left : found->second) {
    const StreamOperation* const reader = current_operation();
    if (left.by == reader) continue;
    const bool host = left.by->kind == StreamOperation::Kind::kHost ||
                      (reader != nullptr && reader->kind == StreamOperation::Kind::kHost);
    // PTX: 8.6: a scope below the system's does not reach another GPU.
    const bool far = !host && reader != nullptr && reader->gpu != left.by->gpu;
    const Released& released = left.released;
    all.certain = Abroad::joined(all.certain, far ? released.of_system : released.certain);
    if (!far) all.supposed = Abroad::joined(all.supposed, released.supposed);
    all.of_system = Abroad::joined(all.of_system, released.of_system);
  }
  return all;
}

void release_by_host(const void* at, size_t bytes) {
  const StreamOperation& store = *current_operation();
  Clock once;
  once.at = {1};
  const Abroad::Pointer released = Abroad::of(kOfHost + store.number, once);
  for (size_t byte = 0; byte < bytes; byte += 4) {
    left_by_word[static_cast<const std::byte*>(at) + byte] = {
        {&store, {released, nullptr, released}}};
  }
  const auto beside_own = [](const Past& past) {
    return std::vector(past.until.begin() + !past.until.empty(), past.until.end());
  };
  if (host_knew.empty() || beside_own(host_knew.back().second) != beside_own(store.before)) {
    host_knew.push_back({store.number, store.before});
  }
}

void release_by_stream(const void* word) {
  Clock once;
  once.at = {1};
  const auto number = kOfStream + static_cast<uint32_t>(releasing_by_words.size());
  const Abroad::Pointer released = Abroad::of(number, once);
  releasing_by_words.push_back(current_operation());
  left_by_word[word] = {{current_operation(), {released, nullptr, released}}};
}

void keep_released(const std::vector<std::pair<const void*, Released>>& words, uint64_t serial) {
  StreamOperation& operation = *current_operation();
  for (auto& [word, all] : left_by_word) {
    std::erase_if(all, [&](const Left& left) { return left.by == &operation; });
  }
  uint32_t clusters = 0;
  // A launch that the host has interrupted keeps its numbers.
  const bool again = operation.numbers.serial == serial;
  const uint32_t first = again ? operation.numbers.first : next_number;
  std::unordered_map<const Abroad*, Abroad::Pointer> renumbered;
  for (const auto& [word, released] : words) {
    for (const Abroad::Pointer& each : {released.certain, released.supposed, released.of_system}) {
      if (each == nullptr || renumbered.count(each.get()) != 0) continue;
      renumbered[each.get()] = each->renumbered(kForeign, first);
      clusters = std::max(clusters, each->highest_below(kForeign) + 1);
    }
  }
  for (StreamOperation* each : acquiring) {
    for (Abroad::Pointer* known : {&each->acquired, &each->supposed, &each->of_system}) {
      if (*known == nullptr || !(*known)->any_of(0, kForeign)) continue;
      clusters = std::max(clusters, (*known)->highest_below(kForeign) + 1);
      *known = (*known)->renumbered(kForeign, first);
    }
  }
  next_number = std::max(next_number, first + clusters);
  operation.numbers = {serial, first, next_number};
  for (const auto& [word, released] : words) {
    left_by_word[word].push_back(
        {&operation,
         {renumbered[released.certain.get()], renumbered[released.supposed.get()],
          renumbered[released.of_system.get()]}});
  }
  if (!words.empty()) remember(releasing, operation);
}

void note_acquired(const Released& released) {
  StreamOperation* const operation = current_operation();
  if (operation == nullptr) return;
  // What grids that run beside each other have released has numbers at the end of the launch.
  const bool beside =
      current_thread != nullptr && !current_thread->cta->cluster->launch->whole->beside.empty();
  const auto note = [&](Abroad::Pointer& into, const Abroad::Pointer& what) {
    if (what == nullptr || !(beside || what->any_of(kForeign, UINT32_MAX))) return;
    into = Abroad::joined(into, what);
    remember(acquiring, *operation);
  };
  note(operation->acquired, released.certain);
  note(operation->supposed, released.supposed);
  note(operation->of_system, released.of_system);
}

Handed handed_over(const StreamOperation& operation, const Access& earlier, bool wrote, bool waited,
                   const Knowledge* knows) {
  if (behind(operation, earlier, wrote, waited)) return Handed::kYes;
  const StreamOperation& by = *operation_of(earlier.serial);
  const Past& past = waited ? operation.waited : operation.before;
  const auto covers = [&](const Abroad::Pointer& known) {
    return covers_access(known.get(), by, earlier);
  };
  using Known = Abroad::Pointer StreamOperation::*;
  const auto knew = [&](Known known, bool narrowly) {
    return std::any_of(acquiring.begin(), acquiring.end(), [&](const StreamOperation* each) {
      return past.covers(*each) && covers(each->*known) &&
             (narrowly || each->kind != StreamOperation::Kind::kHost || covers(each->of_system));
    });
  };
  const bool knows_of = knows != nullptr;
  if ((knows_of && covers(knows->abroad)) || knew(&StreamOperation::acquired, false)) {
    return Handed::kYes;
  }
  if ((knows_of && covers(knows->supposed)) || knew(&StreamOperation::supposed, false)) {
    return Handed::kSupposed;
  }
  if (knew(&StreamOperation::acquired, true) || knew(&StreamOperation::supposed, true)) {
    return Handed::kNarrow;
  }
  if (by.gpu != operation.gpu && releases_narrowly(by, earlier)) return Handed::kNarrow;
  if (knows_of && covers(knows->observed)) return Handed::kUnfenced;
  const bool flagged = knows_of && knows->abroad != nullptr &&
                       knows->abroad->any_of(by.numbers.first, by.numbers.last);
  return flagged ? Handed::kNotCovered : Handed::kNone;
}

void forget_released(const void* begin, const void* end) {
  const auto first = left_by_word.lower_bound(begin), last = left_by_word.lower_bound(end);
  for (auto each = first; several_hosts_poll() && each != last; ++each) {
    for (const auto& [by, released] : each->second) {
      overwritten.certain = Abroad::joined(overwritten.certain, released.certain);
      overwritten.supposed = Abroad::joined(overwritten.supposed, released.supposed);
    }
  }
  left_by_word.erase(first, last);
}

void forget_handovers() {
  left_by_word.clear();
  overwritten = {};
  releasing.clear();
  acquiring.clear();
  host_knew.clear();
  releasing_by_words.clear();
  next_number = kForeign;
}

}  // namespace kb::emu
