// Graphs of the last calls: a call that comes again is one launch.
#pragma once

#include <array>
#include <functional>
#include <optional>

#include "rt.cuh"

namespace kb {

// `Plan` is all that decides what a call enqueues: compared with ==, copied, and passed to
// `enqueue(plan, stream)`. For static variables of a step's host path, whose calls follow each
// other on a stream.
template <typename Plan>
class CallGraphs {
 public:
  // Whether `plan` is one of the last ones.
  bool known(const Plan& plan) { return find(plan) != nullptr; }

  // Enqueues `plan`, with a graph of its own from the second time on: to record one takes longer
  // than a call. Where the caller records the stream, nothing is kept.
  template <typename Enqueue>
  void launch(const Plan& plan, rt::Stream stream, Enqueue enqueue) {
    // An entry that makes room destroys its graph, which would end the caller's recording.
    if (rt::recorded(stream)) return enqueue(plan, stream);
    Entry* entry = find(plan);
    if (entry == nullptr) {
      entries_[next_].emplace(plan);
      next_ = (next_ + 1) % entries_.size();
      return enqueue(plan, stream);
    }
    if (!entry->graph) {
      entry->graph.emplace([plan, enqueue](rt::Stream recorded) { enqueue(plan, recorded); });
    }
    entry->graph->launch(stream);
  }

 private:
  struct Entry {
    Plan plan;
    std::optional<rt::Graph> graph;
    explicit Entry(const Plan& of) : plan(of) {}
  };

  Entry* find(const Plan& plan) {
    for (std::optional<Entry>& entry : entries_) {
      if (entry && entry->plan == plan) return &*entry;
    }
    return nullptr;
  }

  std::array<std::optional<Entry>, 16> entries_;
  size_t next_ = 0;
};

}  // namespace kb
