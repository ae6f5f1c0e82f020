// Work on streams. A piece is done when something that has to wait for it is: the host, or other
// work. So what nobody waits for comes as late as a GPU may do it, and a program that forgets to
// wait sees it (CUDA C++ Programming Guide, asynchronous concurrent execution).
#include <algorithm>
#include <set>

#include "state.hpp"

namespace kb::cuda {

namespace {

struct Piece {
  Work work;
  std::string what;  // empty if nobody need wait for it
  std::vector<Task> after;
};
std::map<Task, Piece> pending;  // those that they come after have smaller numbers
Task last_task = 0;

struct Line {
  Task last = 0;
  std::vector<Task> waits;  // for what the next piece has to wait, too
  bool blocking = true;     // in order with the default stream
};
std::map<cudaStream_t, Line> lines;
std::vector<Task> left_behind;  // the last pieces of blocking streams that are destroyed

// The default stream by each of its names.
cudaStream_t named(cudaStream_t stream) {
  return stream == cudaStreamLegacy ? nullptr : stream;
}

cudaError_t nothing() {
  return cudaSuccess;
}

}  // namespace

cudaStream_t current_stream = nullptr;
bool current_at_once = false;

void open_stream(cudaStream_t stream, bool blocking) {
  lines[stream].blocking = blocking;
}

// CUDA runtime API, cudaStreamDestroy: what was given to the stream is still done.
void close_stream(cudaStream_t stream) {
  const auto found = lines.find(stream);
  if (found == lines.end()) return;
  if (found->second.blocking) left_behind.push_back(found->second.last);
  lines.erase(found);
}

Task enqueue(cudaStream_t stream, Work work, std::string what) {
  Line& line = lines[named(stream)];
  Piece piece{std::move(work), std::move(what), std::move(line.waits)};
  line.waits.clear();
  piece.after.push_back(line.last);
  if (named(stream) == nullptr) {
    for (const auto& [other, each] : lines) {
      if (each.blocking) piece.after.push_back(each.last);
    }
    piece.after.insert(piece.after.end(), left_behind.begin(), left_behind.end());
    left_behind.clear();
  } else if (line.blocking) {
    piece.after.push_back(lines[nullptr].last);
  }
  line.last = ++last_task;
  pending[last_task] = std::move(piece);
  return last_task;
}

Task mark(cudaStream_t stream) {
  return enqueue(stream, nothing);
}

void wait_before_next(cudaStream_t stream, Task task) {
  lines[named(stream)].waits.push_back(task);
}

cudaError_t finish(Task task) {
  std::set<Task> needed;
  std::vector<Task> open{task};
  while (!open.empty()) {
    const auto found = pending.find(open.back());
    open.pop_back();
    if (found == pending.end() || !needed.insert(found->first).second) continue;
    open.insert(open.end(), found->second.after.begin(), found->second.after.end());
  }
  cudaError_t status = cudaSuccess;
  for (const Task each : needed) {
    const Work work = std::move(pending[each].work);
    pending.erase(each);
    const cudaError_t ended = work();
    if (ended != cudaSuccess) status = ended;
  }
  return remembered(status);
}

// One stream after another, the last one first: no program can rely on another order.
cudaError_t finish_all() {
  cudaError_t status = cudaSuccess;
  while (!pending.empty()) {
    const cudaError_t ended = finish(pending.rbegin()->first);
    if (ended != cudaSuccess) status = ended;
  }
  return status;
}

cudaError_t done_at_once(Work work) {
  return finish(enqueue(nullptr, std::move(work)));
}

std::string dropped() {
  std::string names;
  for (const auto& [task, piece] : pending) {
    if (!piece.what.empty()) names += (names.empty() ? "" : "\n") + piece.what;
  }
  pending.clear();
  return names;
}

}  // namespace kb::cuda
