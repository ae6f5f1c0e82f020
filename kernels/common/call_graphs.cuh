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
  // Enqueues `plan`, with a graph of its own if it is none of the last ones; one by one where the
  // stream is being recorded.
  template <typename Enqueue>
  void launch(const Plan& plan, rt::Stream stream, Enqueue enqueue) {
    if (rt::recorded(stream)) return enqueue(plan, stream);
    for (std::optional<Entry>& entry : entries_) {
      if (entry && entry->plan == plan) return entry->graph.launch(stream);
    }
    std::optional<Entry>& entry = entries_[next_];
    next_ = (next_ + 1) % entries_.size();
    entry.reset();
    entry.emplace(plan, [plan, enqueue](rt::Stream recorded) { enqueue(plan, recorded); });
    entry->graph.launch(stream);
  }

 private:
  struct Entry {
    Plan plan;
    rt::Graph graph;
    Entry(const Plan& of, std::function<void(rt::Stream)> enqueue)
        : plan(of), graph(std::move(enqueue)) {}
  };

  std::array<std::optional<Entry>, 16> entries_;
  size_t next_ = 0;
};

}  // namespace kb
